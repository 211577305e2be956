"""Runs of a plan: they are what other runs are, whatever comes in between."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import pytest
from daemon_process import DaemonProcess
from networks import identity_model
from relay import Relay
from tensor_runs import compiled

from nnrt_client import Compilation, Executor, NnrtError, OperationFailed, Runtime, Settings, Tensor, TensorDesc
from nnrt_client.enums import DataType
from nnrt_client.run.plan import Plan
from nnrt_hdi.v2 import prepared_model_pb2
from nnrt_hdi.wire.plans import planned_reply

DEADLINE_S = 20.0
WAYS = {"local socket": Settings(), "gRPC": Settings(share_memory=False)}
ways = pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)
Change = Callable[[bytes], bytes]


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the plans that runs are packed by."""
    numbers: list[int] = []
    pack = Plan.packed

    def noted(plan: Plan, *arguments: Any) -> bytes:
        numbers.append(plan.number)
        return pack(plan, *arguments)

    monkeypatch.setattr(Plan, "packed", noted)
    return numbers


def assert_identity(executor: Executor, x: Any, **how: Any) -> None:
    (y,) = executor.run_sync([x], **how)
    np.testing.assert_array_equal(y, x)
    assert y.shape == x.shape and y.dtype == x.dtype
    assert not y.flags.writeable


@ways
def test_the_second_run_is_of_a_plan(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        for number in range(5):
            assert_identity(executor, np.full(3, number, np.float32))
        assert len(packed) == 4
        assert_identity(executor, np.ones(3, np.float32), timeout_ms=10_000)
        np.testing.assert_array_equal(
            executor.submit([np.array([1, 2, 3], np.float32)]).result(DEADLINE_S)[0], [1, 2, 3]
        )
        assert packed == packed[:1] * 6


@ways
def test_its_times_add_up(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        for _ in range(3):
            times = executor.run_sync([np.ones(3, np.float32)]).times
        assert packed and times is not None
        assert all(part >= 0 for part in times)
        assert times.computed_ns > 0


@ways
def test_shapes_that_come_again_have_plans(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    """The first eight from their second run on, and then others, in the place of the oldest, from their third."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        for length in (*range(1, 12), 8, 11, 11, 11, 11, 8, 1):
            assert_identity(executor, np.arange(length, dtype=np.float32))
        eighth, *eleventh, eighth_again = packed
        assert eighth == eighth_again and len(eleventh) == 3 and len(set(packed)) == 2
        for length in range(20, 300):  # More than the daemon is ever asked for, and than are remembered.
            for _ in range(2):
                assert_identity(executor, np.arange(length, dtype=np.float32))
        assert len(set(packed)) <= 64


def test_one_in_shared_memory(shared_daemon: DaemonProcess, packed: list[int]) -> None:
    """Inputs and outputs pass through memory of the pool, each run's own."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, identity_model(elements=60_000))
        kept = []
        for number in range(6):
            x = np.full(60_000, number, np.float32)
            kept.append((executor.run_sync([x])[0], x))
        for y, x in kept:
            np.testing.assert_array_equal(y, x)
        assert len(packed) == 5


@ways
def test_arrays_that_are_not_contiguous(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        for x in (np.ones(4, np.float32), np.arange(8, dtype=np.float32)[::2], np.arange(4, dtype=np.float32)[::-1]):
            assert_identity(executor, x)
        assert len(packed) == 2


@ways
def test_runs_with_tensors_are_none(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    with ExitStack() as closing:
        device, executor = compiled(closing, shared_daemon.address, settings=settings)
        x = closing.enter_context(Tensor(device, TensorDesc(DataType.FLOAT32, (3,))))
        x.numpy()[:] = (1, 2, 3)
        for _ in range(3):
            np.testing.assert_array_equal(executor.run_sync([x])[0], [1, 2, 3])
        assert not packed


@ways
def test_first_runs_of_several_threads(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    """Each may ask for a plan; all runs are right, and there is one afterwards."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        failures: list[BaseException] = []

        def make(value: int) -> None:
            try:
                for _ in range(20):
                    assert_identity(executor, np.full(5, value, np.float32))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=make, args=(value,)) for value in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert not failures
        assert len(packed) >= 100


@ways
def test_executors_of_one_session(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    """Their plans have numbers of their own, and go with them."""
    with ExitStack() as closing:
        device, executor = compiled(closing, shared_daemon.address, identity_model(elements=3), settings)
        for _ in range(2):
            with ExitStack() as sooner:
                other = _executor(sooner, device, identity_model(elements=4))
                for _ in range(3):
                    assert_identity(executor, np.ones(3, np.float32))
                    assert_identity(other, np.ones(4, np.float32))
        assert len(set(packed)) == 3


@ways
def test_executors_of_one_model_share_its_plans(
    shared_daemon: DaemonProcess, settings: Settings, packed: list[int]
) -> None:
    """However many are made, the daemon keeps one plan."""
    with ExitStack() as closing:
        device = closing.enter_context(Runtime([shared_daemon.address], settings)).device()
        compilation = closing.enter_context(Compilation(identity_model(), device))
        compilation.build()
        for _ in range(5):
            with Executor(compilation) as executor:
                assert_identity(executor, np.ones(3, np.float32))
        assert packed == packed[:1] * 4


def _executor(closing: ExitStack, device: Any, model: Any) -> Executor:
    compilation = closing.enter_context(Compilation(model, device))
    compilation.build()
    return closing.enter_context(Executor(compilation))


def test_a_daemon_that_keeps_no_plans(
    shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch, packed: list[int]
) -> None:
    """As one of before: nobody asks it for a plan."""
    monkeypatch.setattr("nnrt_client.run.plan.FEATURE", "no such feature")
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address)
        for _ in range(3):
            assert_identity(executor, np.ones(3, np.float32))
        assert not packed


# ---- replies that make no sense


def other_run(reply: bytes) -> bytes:
    return reply[:8] + (2**40).to_bytes(8, "little") + reply[16:]


def shorter(reply: bytes) -> bytes:
    return reply[:-4]


def longer(reply: bytes) -> bytes:
    return reply + bytes(4)


def other_mark(reply: bytes) -> bytes:
    return b"\0\1" + reply[2:]


def forged(change: Change, data: bytes) -> bytes:
    reply = planned_reply(data)
    assert reply is not None
    return prepared_model_pb2.RunReply(planned=change(reply)).SerializeToString()


@pytest.mark.parametrize("change", [other_run, shorter, longer, other_mark])
def test_a_wrong_planned_reply_of_a_stream(shared_daemon: DaemonProcess, change: Change) -> None:
    """It ends its stream and fails its run."""
    with Relay(shared_daemon.address) as relay, ExitStack() as closing:
        _, executor = compiled(closing, relay.address, identity_model(elements=3), WAYS["gRPC"])
        assert_identity(executor, np.ones(3, np.float32))
        relay.forgers["RunStream"] = partial(forged, change)
        error = executor.submit([np.ones(3, np.float32)]).exception(DEADLINE_S)
        assert isinstance(error, OperationFailed) and "answers no run" in str(error), error
        relay.forgers.clear()
        assert_identity(executor, np.ones(3, np.float32))


@pytest.mark.parametrize("change", [shorter, longer, other_mark])
def test_a_wrong_planned_reply_of_the_local_socket(shared_daemon: DaemonProcess, change: Change) -> None:
    """It ends its connection; the run's reply is fetched."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, identity_model(elements=3))
        assert_identity(executor, np.ones(3, np.float32))
        lane: Any = executor._queue._local
        connection = lane.mains._connection
        receive = connection.receive
        connection.receive = lambda *arguments: change(receive(*arguments))
        assert_identity(executor, np.ones(3, np.float32))
        assert lane.mains is None or lane.mains._connection is not connection
        assert_identity(executor, np.ones(3, np.float32))


def test_an_error_in_place_of_a_planned_reply(shared_daemon: DaemonProcess, packed: list[int]) -> None:
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, identity_model(elements=3))
        for _ in range(2):
            assert_identity(executor, np.ones(3, np.float32))
        session = executor._session
        session.call(
            "PreparedModel.Release",
            prepared_model_pb2.ReleaseRequest(model_id=executor._signature.model_id),
            DEADLINE_S,
        )
        with pytest.raises(NnrtError):
            executor.run_sync([np.ones(3, np.float32)])
        assert len(packed) == 2
