"""Runs that the device ends later: as many as it has slots for, in any order, without a thread for each."""

import os
import signal
import sys
from concurrent.futures import CancelledError
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import warm
from opaque_backend import JOURNAL
from proxy import Proxy
from waiting import until

from nnrt_client import (
    DataType,
    Model,
    NnrtError,
    OperationType,
    OutOfMemory,
    ResidentTensor,
    Settings,
    Tensor,
    TensorDesc,
    TimedOut,
    UnavailableDevice,
)
from nnrt_client.session.device import session_of
from nnrt_client.session.release import release_buffer
from nnrt_device_service.host.exit import ExitCode
from started.conftest import DEADLINE_S, ELEMENTS, LONG_MS, Chip, StartChip, assert_answer, run_of
from started.signs import ABANDONED, AT_ONCE, DEAF, FAILS, HELD, LOST, RAISES, REFUSED, TWICE

TESTS = Path(__file__).parent.parent
WAYS = {"local socket": Settings(), "gRPC": Settings(share_memory=False)}
ways = pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)


def test_runs_on_the_device_have_no_threads(start_chip: StartChip) -> None:
    runs = 32
    device = start_chip("--session-streams", str(2 * runs), runs=runs)
    executor = device.client()
    executor.submit(run_of(1)).result(DEADLINE_S)
    before = device.threads
    futures = {HELD + at: executor.submit(run_of(HELD + at), timeout_ms=LONG_MS) for at in range(runs)}
    device.await_load(running=runs)
    assert device.threads < before + runs // 4
    numbers = list(futures)
    for number in chain(reversed(numbers[::2]), numbers[1::2]):
        device.end(number)
        assert_answer(futures.pop(number).result(DEADLINE_S), number)
        assert not any(future.done() for future in futures.values())
    device.await_load(running=0)


def test_runs_that_find_no_slot_wait_for_one(start_chip: StartChip) -> None:
    device = start_chip(runs=2)
    clients = [device.client() for _ in range(3)]
    futures = {HELD + at: clients[at % 3].submit(run_of(HELD + at), timeout_ms=LONG_MS) for at in range(9)}
    device.await_load(running=2, queued=7)
    device.end(*futures)  # Of those that come onto the device later, it doesn't know yet.
    ended = set[float]()
    while len(ended) < len(futures):
        device.end(*futures)
        ended |= {number for number, future in futures.items() if future.done()}
    for number, future in futures.items():
        assert_answer(future.result(DEADLINE_S), number)


def test_runs_go_together(chip: Chip) -> None:
    """Short ones, of which the client sends several in a packet."""
    executor = chip.client()
    futures = {number: executor.submit(run_of(number)) for number in range(200)}
    for number, future in futures.items():
        assert_answer(future.result(DEADLINE_S), number)


@ways
def test_a_run_that_is_cancelled(chip: Chip, settings: Settings) -> None:
    executor = chip.client(settings)
    held = executor.submit(run_of(HELD))
    cancelled = executor.submit(run_of(HELD + 1))
    chip.await_load(running=2)
    cancelled.cancel()
    chip.await_load(running=1)
    with pytest.raises(CancelledError):
        cancelled.result(DEADLINE_S)
    chip.end(HELD)
    assert_answer(held.result(DEADLINE_S), HELD)


@ways
def test_a_run_that_passes_its_deadline(chip: Chip, settings: Settings) -> None:
    executor = chip.client(settings)
    executor.submit(run_of(1)).result(DEADLINE_S)
    held = executor.submit(run_of(HELD), timeout_ms=LONG_MS)
    with pytest.raises(TimedOut):
        executor.submit(run_of(HELD + 1), timeout_ms=50).result(DEADLINE_S)
    chip.await_load(running=1)
    chip.end(HELD)
    assert_answer(held.result(DEADLINE_S), HELD)


@pytest.mark.parametrize("number", [FAILS, RAISES])
@ways
def test_a_device_that_fails(chip: Chip, settings: Settings, number: float) -> None:
    executor = chip.client(settings)
    with pytest.raises(UnavailableDevice, match=r"failed to run the model \(RuntimeError\)"):
        executor.run_sync(run_of(number))
    assert chip.log().count("RuntimeError: DMA fault") == 1
    assert_answer(executor.run_sync(run_of(1)), 1)
    assert chip.ended_runs() == {"done": 2, "failed": 1}


@ways
def test_an_error_for_the_client(chip: Chip, settings: Settings) -> None:
    executor = chip.client(settings)
    with pytest.raises(OutOfMemory, match="the chip has no room for it"):
        executor.run_sync(run_of(REFUSED))
    assert_answer(executor.run_sync(run_of(1)), 1)


@ways
def test_an_end_that_is_no_exception(chip: Chip, settings: Settings) -> None:
    """As that of a task of an event loop, which other threads of the daemon would let through."""
    executor = chip.client(settings)
    with pytest.raises(UnavailableDevice, match=r"failed to run the model \(CancelledError\)"):
        executor.submit(run_of(ABANDONED)).result(DEADLINE_S)
    assert_answer(executor.run_sync(run_of(1)), 1)


@ways
def test_a_run_that_ends_before_it_has_been_started(chip: Chip, settings: Settings) -> None:
    executor = chip.client(settings)
    for _ in range(3):
        assert_answer(executor.run_sync(run_of(AT_ONCE)), AT_ONCE)


@ways
def test_a_run_that_ends_twice(chip: Chip, settings: Settings) -> None:
    """The first end counts, and the log has the other."""
    executor = chip.client(settings)
    assert_answer(executor.run_sync(run_of(TWICE)), TWICE)
    until(lambda: "ended a run that had ended already" in chip.log())
    until(lambda: "RuntimeError: DMA fault" in chip.log())
    for number in range(3):
        assert_answer(executor.run_sync(run_of(number)), number)
    assert chip.ended_runs() == {"done": 5}
    chip.await_load(running=0)


def test_a_run_that_never_ends_makes_the_device_stuck(start_chip: StartChip) -> None:
    device = start_chip("--stuck-s", "0.5")
    executor = device.client()
    future = executor.submit(run_of(DEAF), timeout_ms=50)
    assert device.daemon.wait() == ExitCode.STUCK
    with pytest.raises(NnrtError):
        future.result(DEADLINE_S)


def test_a_device_that_is_lost_ends_its_daemon(start_chip: StartChip) -> None:
    device = start_chip()
    executor = device.client()
    with pytest.raises(UnavailableDevice):
        executor.run_sync(run_of(LOST))
    assert device.daemon.wait() == ExitCode.LOST
    assert "the device is lost: the chip hangs on its bus" in device.log()


def test_a_run_that_lasts_too_long(start_chip: StartChip) -> None:
    device = start_chip("--max-run-s", "0.5")
    with pytest.raises(TimedOut, match="--max-run-s"):
        device.client().submit(run_of(HELD), timeout_ms=LONG_MS).result(DEADLINE_S)


def test_a_client_that_is_killed(start_chip: StartChip) -> None:
    """Its runs are stopped; its model is closed when the last has ended, which one does that can't be stopped."""
    device = start_chip("--lease-s", "0")
    numbers = [HELD, HELD + 1, DEAF]
    command = [sys.executable, "-m", "started.client", device.daemon.address, *map(str, numbers)]
    with warm.Popen(command, env={**os.environ, "PYTHONPATH": str(TESTS)}) as client:
        device.await_load(running=3)
        client.kill()
    device.observer.wait_for(lambda state: (state.sessions, state.running) == (1, 1))
    assert "closed a model" not in device.daemon.log()
    device.end(DEAF)
    device.observer.wait_until_empty()
    assert device.daemon.log().count("closed a model") == 1


def test_a_lost_connection(start_chip: StartChip) -> None:
    """Runs end on the device meanwhile and afterwards, each once, and the client gets every reply."""
    device = start_chip("--lease-s", "60")
    with Proxy(device.daemon.address) as proxy, ExitStack() as closing:
        executor = device.client(Settings(reconnect_timeout_s=DEADLINE_S), address=proxy.address, closing=closing)
        futures = {HELD + at: executor.submit(run_of(HELD + at), timeout_ms=LONG_MS) for at in range(4)}
        device.await_load(running=4)
        proxy.cut()
        device.end(HELD, HELD + 1)
        for number in (HELD, HELD + 1):
            assert_answer(futures[number].result(DEADLINE_S), number)
        device.end(HELD + 2, HELD + 3)
        for number, future in futures.items():
            assert_answer(future.result(DEADLINE_S), number)
        device.await_load(running=0)


def test_drain(start_chip: StartChip) -> None:
    """The daemon ends when all runs have, and their replies been sent."""
    device = start_chip("--drain-timeout-s", "60")
    executor = device.client()
    futures = {HELD + at: executor.submit(run_of(HELD + at), timeout_ms=LONG_MS) for at in range(3)}
    device.await_load(running=3)
    device.daemon.send(signal.SIGTERM)
    device.observer.wait_for(lambda state: state.draining)
    with pytest.raises(UnavailableDevice):
        executor.run_sync(run_of(1))
    device.end(*futures)
    for number, future in futures.items():
        assert_answer(future.result(DEADLINE_S), number)
    assert device.daemon.wait() == 0
    assert "Traceback" not in device.daemon.log()


def test_a_daemon_that_ends_under_runs(start_chip: StartChip) -> None:
    """It stops them and closes their model before it lets go of the device."""
    device = start_chip("--drain-timeout-s", "0.1")
    future = device.client().submit(run_of(HELD), timeout_ms=LONG_MS)
    device.await_load(running=1)
    device.daemon.send(signal.SIGTERM)
    assert device.daemon.wait() == 0
    with pytest.raises(UnavailableDevice):
        future.result(DEADLINE_S)
    assert "closed a model" in device.daemon.log()
    assert "Traceback" not in device.daemon.log()


def test_tensors_stay_where_they_are(chip: Chip, closing: ExitStack) -> None:
    executor = chip.client(closing=closing)
    desc, here = TensorDesc(DataType.FLOAT32, (1 << 20,)), chip.device
    with Tensor(here, desc) as x, Tensor(here, desc) as y:
        for number in (1.0, 2.0, HELD):
            x.numpy()[:] = number
            future = executor.submit([x], [y], timeout_ms=LONG_MS)
            if number == HELD:
                chip.await_load(running=1)
                chip.end(HELD)
            future.result(DEADLINE_S)
            assert (y.numpy() == number).all()


def test_large_arrays(chip: Chip) -> None:
    executor, elements = chip.client(), 1 << 20
    for number in (1.0, 2.0, 3.0):
        assert_answer(executor.run_sync(run_of(number, elements)), number, elements)


def first_elements(elements: int) -> Model:
    """The first elements of so many, as many as the second input says."""
    model = Model()
    x, count = model.input((elements,), name="x"), model.input((1,), DataType.INT32, name="count")
    y = model.apply(OperationType.SLICE, x, np.zeros(1, np.int32), count, axes=[0])
    model.specify_inputs_and_outputs([x, count], [y])
    model.finish()
    return model


def test_outputs_that_are_not_those_of_the_plan(chip: Chip) -> None:
    """Also where there are too many for a packet."""
    elements = 1 << 18
    executor = chip.client(model=lambda: first_elements(elements))
    (x,) = run_of(1, elements)
    for count in (4, 4, 5, elements, 4):
        (y,) = executor.run_sync([x, np.array([count], np.int32)])
        np.testing.assert_array_equal(y, x[:count])


def test_tensors_on_the_device(start_chip: StartChip, tmp_path: Path, closing: ExitStack) -> None:
    """They stay there, also while nothing but a run uses them."""
    device = start_chip("--option", "inner=opaque", "--option", f"folder={tmp_path}")
    executor, here, desc = device.client(), device.device, TensorDesc(DataType.FLOAT32, (ELEMENTS,))
    x, y = (closing.enter_context(ResidentTensor(here, desc)) for _ in range(2))
    for number in (1.0, 2.0, HELD):
        x.write(run_of(number)[0])
        future = executor.submit([x], [y], timeout_ms=LONG_MS)
        if number != HELD:
            future.result(DEADLINE_S)
            assert_answer([y.numpy()], number)
    device.await_load(running=1)
    for tensor in (x, y):  # `close` would wait for the run.
        release_buffer(session_of(here), tensor._memory.id)
    device.end(HELD)
    assert future.result(DEADLINE_S) == [y]
    journal = tmp_path / JOURNAL
    until(lambda: journal.read_text().count("free ") == 2, journal.read_text)
    assert "freed memory was used" not in journal.read_text()


def test_a_run_that_waits_for_memory(start_chip: StartChip) -> None:
    elements = 1 << 20
    device = start_chip("--run-bytes", str(6 * elements), runs=3)
    clients = [device.client() for _ in range(3)]
    futures = [clients[0].submit(run_of(HELD, elements), timeout_ms=LONG_MS)]
    device.await_load(running=1)
    futures.append(clients[1].submit(run_of(HELD + 1, elements), timeout_ms=LONG_MS))
    device.await_load(running=1, queued=1)
    assert_answer(clients[2].run_sync(run_of(1)), 1)
    for at, future in enumerate(futures):
        device.await_load(running=1, queued=1 - at)
        device.end(HELD + at)
        assert_answer(future.result(DEADLINE_S), HELD + at, elements)


@pytest.mark.slow
def test_a_device_that_goes_out(start_chip: StartChip, tmp_path: Path) -> None:
    """Its runs end. Its canary is started as they are."""
    fault = tmp_path / "fault"
    device = start_chip("--canary", "0.2", "--option", "inner=injected", "--option", f"fault={fault}")
    future = device.client().submit(run_of(HELD), timeout_ms=LONG_MS)
    device.observer.wait_for(lambda state: state.running >= 1)
    fault.write_text("wrong")
    with pytest.raises(UnavailableDevice, match="its canary's answer is wrong"):
        future.result(DEADLINE_S)
