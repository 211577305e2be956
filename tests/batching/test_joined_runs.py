"""Runs that wait for the device are computed together, and each ends as if it had been alone."""

import os
import signal
import sys
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm
from access.conftest import Access
from waiting import until

from batching.conftest import DEADLINE_S, IN, LONG_MS, StartBlockable, alone, dense_model, rows
from batching.signs import FAILS, WAITS
from nnrt_client import Batches, Batching, Compilation, Executor, Priority, Runtime, TimedOut, UnavailableDevice

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("inner", ["reference", "onnxruntime"])
def test_answers_are_those_of_runs_alone(start_blockable: StartBlockable, inner: str) -> None:
    """Of eight sessions with one run each, and one with several rows."""
    device = start_blockable(inner=inner)
    clients = [device.client() for _ in range(8)]
    inputs = [rows(seed, count=1 + seed % 3) for seed in range(8)]
    device.hold()
    futures = device.submitted(list(zip(clients, inputs, strict=True)))
    device.open()
    answers = [future.result(DEADLINE_S)[0] for future in futures]
    assert device.computed() == [sum(map(len, inputs))]
    with alone(device.daemon) as executor:
        for array, answer in zip(inputs, answers, strict=True):
            expected = executor.run_sync([array])[0]
            assert answer.shape == expected.shape
            np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-5)


def test_no_more_rows_than_asked(start_blockable: StartBlockable) -> None:
    device = start_blockable()
    clients = [device.client(Batching(max_size=4)) for _ in range(3)]
    device.hold()
    futures = device.submitted([(clients[number % 3], rows(number, 1 + number % 2)) for number in range(6)])
    device.open()
    for future in futures:
        future.result(DEADLINE_S)
    assert sum(device.computed()) == 9
    assert max(device.computed()) <= 4
    assert len(device.computed()) < 6


def test_one_that_fails_among_others(start_blockable: StartBlockable) -> None:
    """It alone fails; the others are computed again, each alone."""
    device = start_blockable()
    good, bad = device.client(), device.client()
    device.hold()
    futures = device.submitted([(good, rows(1)), (bad, np.full((1, IN), FAILS, np.float32)), (good, rows(2))])
    device.open()
    with pytest.raises(UnavailableDevice, match="ZeroDivisionError"):
        futures[1].result(DEADLINE_S)
    for future in (futures[0], futures[2]):
        assert future.result(DEADLINE_S)[0].shape == (1, 4)
    assert device.computed()[0] == 3
    assert sorted(device.computed()[1:]) == [1, 1, 1]


def test_one_that_is_cancelled_among_others(start_blockable: StartBlockable) -> None:
    device = start_blockable()
    clients = [device.client() for _ in range(3)]
    device.hold()
    futures = device.submitted([(client, rows(seed)) for seed, client in enumerate(clients)])
    futures[1].cancel()
    device.await_load(running=1, queued=2)
    device.open()
    with pytest.raises(CancelledError):
        futures[1].result(DEADLINE_S)
    assert [len(future.result(DEADLINE_S)[0]) for future in (futures[0], futures[2])] == [1, 1]
    assert device.computed() == [2]


def test_one_whose_time_is_over_among_others(start_blockable: StartBlockable) -> None:
    """It ends while the device is held, and never begins."""
    device = start_blockable()
    patient, hasty = device.client(), device.client()
    device.hold()
    (first,) = device.submitted([(patient, rows(1))])
    (second,) = device.submitted([(hasty, rows(2))], timeout_ms=300)
    with pytest.raises(TimedOut):
        second.result(DEADLINE_S)
    device.await_load(running=1, queued=1)
    device.open()
    first.result(DEADLINE_S)
    assert device.computed() == [1]


def test_sessions_of_another_model_are_not_joined(start_blockable: StartBlockable) -> None:
    device = start_blockable()
    one, other = device.client(), device.client(model=lambda: dense_model(seed=1))
    device.hold()
    futures = device.submitted([(one, rows(1)), (other, rows(2)), (one, rows(3)), (other, rows(4))])
    device.open()
    for future in futures:
        future.result(DEADLINE_S)
    assert sorted(device.computed()) == [2, 2]


def test_clients_that_ask_for_nothing_run_alone(start_blockable: StartBlockable) -> None:
    device = start_blockable()
    clients = [device.client(None) for _ in range(3)]
    device.hold()
    futures = device.submitted([(client, rows(1)) for client in clients])
    device.open()
    for future in futures:
        future.result(DEADLINE_S)
    assert device.computed() == [1, 1, 1]


def test_the_operator_has_all_joined_that_can_be(start_blockable: StartBlockable) -> None:
    device = start_blockable("--batch", "16")
    clients = [device.client(None) for _ in range(3)]
    device.hold()
    futures = device.submitted([(client, rows(1)) for client in clients])
    device.open()
    for future in futures:
        future.result(DEADLINE_S)
    assert device.computed() == [3]


def test_high_goes_first_and_takes_others_along(start_blockable: StartBlockable) -> None:
    """Of a batch that has no room for all."""
    device = start_blockable("--priority-ageing-s", "600")
    batching = Batching(max_size=2)
    low, high = device.client(batching, priority=Priority.LOW), device.client(batching, priority=Priority.HIGH)
    device.hold()
    lows = device.submitted([(low, np.full((1, IN), WAITS, np.float32)) for _ in range(2)])
    highs = device.submitted([(high, rows(number)) for number in range(2)])
    device.open()
    for future in highs:
        future.result(DEADLINE_S)
    assert not any(future.done() for future in lows)
    device.open()
    for future in lows:
        future.result(DEADLINE_S)
    assert device.computed() == [2, 2]


def test_runs_of_several_rows_with_other_sizes_beside_them(start_blockable: StartBlockable) -> None:
    """One that is larger than a batch runs alone."""
    device = start_blockable()
    client = device.client(Batching(max_size=2))
    device.hold()
    futures = device.submitted([(client, rows(1, 5)), (client, rows(2)), (client, rows(3))])
    device.open()
    assert [len(future.result(DEADLINE_S)[0]) for future in futures] == [5, 1, 1]
    assert device.computed() == [5, 2]


def test_batches_are_counted(start_blockable: StartBlockable) -> None:
    device = start_blockable()
    clients = [device.client() for _ in range(3)]
    device.hold()
    futures = device.submitted([(client, rows(1)) for client in clients])
    device.open()
    for future in futures:
        future.result(DEADLINE_S)
    assert device.load.batches == Batches(runs=3, rows=3, counts=(0, 0, 1))


@pytest.mark.parametrize("whose, batches", [("identity", [1, 1]), ("identities", [2])])
def test_identities(start_blockable: StartBlockable, tmp_path: Path, whose: str, batches: list[int]) -> None:
    """Runs of two are computed together only where the operator says so."""
    access = Access(tmp_path)
    ada, bob = access.add("ada", "administer"), access.add("bob", "compile")
    device = start_blockable("--access", str(access.path), "--batch-across", whose, settings=ada)
    bobs = replace(device.settings, token_file=bob.token_file)
    clients = [device.client(), device.client(settings=bobs)]
    device.hold()
    futures = device.submitted([(client, rows(1)) for client in clients])
    device.open()
    for future in futures:
        future.result(DEADLINE_S)
    assert device.computed() == batches


def test_runs_that_one_thread_finds_in_several_connections(start_blockable: StartBlockable) -> None:
    """On one host they need not wait for the device to be computed together."""
    device = start_blockable()
    clients = [device.client() for _ in range(6)]
    if not device.settings.share_memory:
        pytest.skip("over gRPC each stream has a thread")
    device.hold()
    device.open()
    answers: list[Any] = []

    def are_joined() -> bool:
        """Whether some of them were found together; it depends on when their packets came."""
        before = device.computed()
        device.daemon.stop()
        futures = [client.submit([rows(seed)], timeout_ms=LONG_MS) for seed, client in enumerate(clients)]
        device.daemon.send(signal.SIGCONT)
        answers[:] = [future.result(DEADLINE_S)[0] for future in futures]
        now = device.computed()
        assert sum(now) - sum(before) == 6
        return len(now) - len(before) < 6

    until(are_joined)
    with alone(device.daemon) as executor:
        for seed, answer in enumerate(answers):
            np.testing.assert_allclose(answer, executor.run_sync([rows(seed)])[0], rtol=1e-5, atol=1e-5)


def test_a_client_that_is_killed_among_others(start_blockable: StartBlockable) -> None:
    device = start_blockable("--lease-s", "0")
    client = device.client()
    device.hold()
    command = [sys.executable, "-m", "batching.waiting_client", device.daemon.address]
    with warm.Popen(command, env={**os.environ, "PYTHONPATH": str(TESTS)}) as other:
        device.await_load(running=1, queued=1)
        (future,) = device.submitted([(client, rows(1))])
        other.kill()
    device.await_load(running=1, queued=1)
    device.open()
    assert len(future.result(DEADLINE_S)[0]) == 1
    assert device.computed() == [1]


def test_what_failed_together_waits_for_nobody(start_blockable: StartBlockable) -> None:
    """Each is made again alone, and does not wait for others once more, whom it would be computed with."""
    device = start_blockable()
    batching = Batching(max_size=2, max_delay_us=500_000)
    good, bad = device.client(batching), device.client(batching)
    before = len(device.computed())
    futures = [good.submit([rows(1)]), bad.submit([np.full((1, IN), FAILS, np.float32)])]
    assert len(futures[0].result(DEADLINE_S)[0]) == 1
    with pytest.raises(UnavailableDevice, match="ZeroDivisionError"):
        futures[1].result(DEADLINE_S)
    assert device.computed()[before:] == [2, 1, 1]


def test_a_model_that_is_released_while_others_run_with_it(start_blockable: StartBlockable) -> None:
    """The one who came first leaves; the run of both goes on with what it began with."""
    device = start_blockable("--share-models", "none", inner="onnxruntime")
    batching = Batching(max_size=2, max_delay_us=500_000)
    stays = device.client(batching)
    with (
        Runtime([device.daemon.address], device.settings) as runtime,
        Compilation(dense_model(), runtime.device()) as compilation,
    ):
        compilation.set_batching(batching)
        compilation.build()
        with Executor(compilation) as leaves:
            left = leaves.submit([np.full((1, IN), WAITS, np.float32)], timeout_ms=LONG_MS)
            answer = stays.submit([rows(1)], timeout_ms=LONG_MS)
            until(lambda: "computes 2 rows" in device.daemon.log(), device.daemon.log)
            left.cancel()
            with pytest.raises(CancelledError):
                left.result(DEADLINE_S)
    assert "closes" not in device.daemon.log()
    device.open()
    assert answer.result(DEADLINE_S)[0].shape == (1, 4)
    until(lambda: "closes" in device.daemon.log(), device.daemon.log)
    assert device.computed() == [1, 2]
