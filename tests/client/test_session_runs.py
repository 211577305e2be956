"""Runs of a session: in asyncio, chosen outputs, arrays of others, and what is left of them when a daemon dies."""

import array
import asyncio
import ctypes
import gc
import logging
import math
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocked_call import BlockedCall
from conftest import StartDaemon
from daemon_process import DaemonProcess
from gate import Gate
from networks import identity_model
from observer import Observer
from runs_left import runs_left
from waiting import until

from nnrt_client import (
    DataType,
    InvalidParameter,
    Model,
    ModelSession,
    OperationFailed,
    OperationType,
    OutOfMemory,
    ResidentTensor,
    Runtime,
    RunTimes,
    Settings,
    Tensor,
    TensorDesc,
    TimedOut,
    UnavailableDevice,
    load,
)
from nnrt_client.model_session.model_session import executor_of
from nnrt_client.pool.outage import Outage


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NNRT_DEVICES", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def sums_model() -> Model:
    """x + 1, x * 2, and x itself added to it."""
    model = Model()
    x = model.input((-1, 4), name="x")
    made = [
        model.apply(OperationType.ADD, x, np.array([1], np.float32)),
        model.apply(OperationType.MUL, x, np.array([2], np.float32)),
        model.apply(OperationType.ADD, x, x),
    ]
    model.specify_inputs_and_outputs([x], made)
    model.finish()
    return model


def names_of(session: ModelSession) -> list[str]:
    return [desc.name for desc in session.outputs]


# ---- asyncio


async def gathered(session: ModelSession, count: int) -> list[Any]:
    return await asyncio.gather(*(session.run_async({"x": np.full((1, 4), at, "f4")}) for at in range(count)))


def test_asyncio_awaits_runs(each_daemon: DaemonProcess) -> None:
    with load(sums_model(), each_daemon.address) as session:
        added, *_ = names_of(session)
        for at, outputs in enumerate(asyncio.run(gathered(session, 50))):
            np.testing.assert_array_equal(outputs[added], np.full((1, 4), at + 1, "f4"))

        async def refused() -> None:
            with pytest.raises(InvalidParameter, match="the model takes"):
                await session.run_async({"x": np.zeros((1, 3), "f4")})

        asyncio.run(refused())


@pytest.mark.parametrize("share_memory", [True, False], ids=["local", "grpc"])
def test_a_task_that_is_cancelled_cancels_its_run(share_memory: bool, start_daemon: StartDaemon) -> None:
    """On the device too, which goes on with the next. No run has a thread of its own."""
    daemon = start_daemon("--backend", "slow")

    async def cancelled(session: ModelSession) -> int:
        tasks = [asyncio.create_task(session.run_async({"x": [1.0]})) for _ in range(64)]
        await asyncio.sleep(0)
        threads = threading.active_count()
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        return threads

    before = threading.active_count()
    with load(identity_model(), daemon.address, settings=Settings(share_memory=share_memory)) as session:
        assert asyncio.run(cancelled(session)) - before < 40
        until(lambda: not runs_left(), runs_left)
        with pytest.raises(TimedOut):  # It has a slot for others again.
            session.run({"x": [1.0]}, timeout_ms=20)


# ---- outputs


@pytest.mark.parametrize("share_memory", [True, False], ids=["local", "grpc"])
@pytest.mark.parametrize("rows", [1, 3000, 200_000])
def test_outputs_that_are_asked_for(share_memory: bool, rows: int, onnxruntime_daemon: DaemonProcess) -> None:
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    settings = Settings(share_memory=share_memory)
    with load(sums_model(), onnxruntime_daemon.address, settings=settings) as session:
        added, doubled, twice = names_of(session)
        assert list(session.run({"x": x}, outputs=[twice, added])) == [twice, added]
        assert session.run({"x": x}, outputs=[]) == {}
        for _ in range(2):
            outputs = session.run({"x": x}, outputs=[doubled], writable=True)
            np.testing.assert_array_equal(outputs[doubled], x * 2)
            outputs[doubled][...] = -1
            assert not session.run({"x": x})[doubled].flags.writeable
        assert session.submit({"x": x}, outputs=[added], writable=True).result()[added].flags.writeable
        with pytest.raises(InvalidParameter, match="there is no output 'nothing'"):
            session.run({"x": x}, outputs=["nothing"])
        with pytest.raises(InvalidParameter, match="give a list of names"):
            session.run({"x": x}, outputs=added)


@pytest.mark.parametrize("share_memory", [True, False], ids=["local", "grpc"])
@pytest.mark.parametrize("rows", [1, 3000, 200_000])
def test_others_are_not_sent(share_memory: bool, rows: int, onnxruntime_daemon: DaemonProcess) -> None:
    """Neither as bytes nor by way of shared memory; those beside them are what they are otherwise."""
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    settings = Settings(share_memory=share_memory)
    with load(sums_model(), onnxruntime_daemon.address, settings=settings) as session:
        for unwanted in ((0, 2), (1,), (0, 1, 2)):
            for _ in range(2):
                results = executor_of(session)._run({"x": x}, None, None, unwanted)
                assert [isinstance(result, np.ndarray) for result in results] == [at not in unwanted for at in range(3)]
                for at, result in enumerate(results):
                    if at not in unwanted:
                        np.testing.assert_array_equal(result, (x + 1, x * 2, x + x)[at])


@pytest.mark.parametrize("share_memory", [True, False], ids=["local", "grpc"])
@pytest.mark.parametrize("rows", [2, 100_000])
def test_some_outputs_go_to_tensors(share_memory: bool, rows: int, onnxruntime_daemon: DaemonProcess) -> None:
    """One stays on the device, one goes to a tensor, one comes as an array."""
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    settings = Settings(share_memory=share_memory)
    with load(sums_model(), onnxruntime_daemon.address, settings=settings) as session:
        added, doubled, twice = names_of(session)
        desc = TensorDesc(DataType.FLOAT32, x.shape)
        with ResidentTensor(session.device, desc) as resident, Tensor(session.device, desc) as tensor:
            outputs = session.run({"x": x}, outputs={added: resident, doubled: None, twice: tensor})
            assert (outputs[added], outputs[twice]) == (resident, tensor)
            np.testing.assert_array_equal(resident.numpy(), x + 1)
            np.testing.assert_array_equal(outputs[doubled], x * 2)
            np.testing.assert_array_equal(tensor.numpy(), x + x)
            again = session.submit({"x": resident}, outputs={twice: tensor, doubled: None}).result()
            np.testing.assert_array_equal(again[doubled], (x + 1) * 2)
            np.testing.assert_array_equal(tensor.numpy(), (x + 1) * 2)


def test_times(onnxruntime_daemon: DaemonProcess) -> None:
    with load(sums_model(), onnxruntime_daemon.address) as session:
        for outputs in (session.run({"x": np.ones((1, 4), "f4")}), *asyncio.run(gathered(session, 1))):
            assert isinstance(outputs.times, RunTimes)
            assert outputs.times.computed_ns > 0


# ---- inputs


class Foreign:
    """Has DLPack and nothing else, as arrays of other libraries may."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def __dlpack__(self, **options: Any) -> Any:
        return self._own.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._own.__dlpack_device__()


X = np.arange(4, dtype=np.float32).reshape(1, 4)
MADE: dict[str, Callable[[], Any]] = {
    "DLPack": lambda: Foreign(X),
    "buffer": lambda: memoryview(array.array("f", [0, 1, 2, 3])).cast("B").cast("f", (1, 4)),
    "ctypes": lambda: (ctypes.c_float * 4 * 1).from_buffer_copy(X.tobytes()),
    "subclass": lambda: X.view(np.recarray),
    "list": lambda: X.tolist(),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE.keys())
def test_arrays_of_others(make: Callable[[], Any], shared_daemon: DaemonProcess) -> None:
    with load(sums_model(), shared_daemon.address) as session:
        np.testing.assert_array_equal(session.run({"x": make()})[names_of(session)[0]], X + 1)


def test_they_are_not_copied() -> None:
    from nnrt_client.run.arrays import view_array

    memory = array.array("f", [0, 1, 2, 3])
    for given, own in ((Foreign(X), X), (memory, np.frombuffer(memory, np.float32))):
        viewed = view_array(given)
        assert viewed is not None
        assert np.shares_memory(viewed, own)


def test_they_must_have_the_models_type(shared_daemon: DaemonProcess) -> None:
    with load(sums_model(), shared_daemon.address) as session:
        wrongs: list[Any] = [Foreign(X.astype(np.float64)), memoryview(b"1234")]
        for wrong in wrongs:
            with pytest.raises(InvalidParameter, match="the model takes"):
                session.run({"x": wrong})


def test_numbers_for_integers(shared_daemon: DaemonProcess) -> None:
    """Those that are not whole are not cut off."""
    model = Model()
    x = model.input((2,), DataType.INT32, name="x")
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.ADD, x, np.ones(2, np.int32))])
    model.finish()
    with load(model, shared_daemon.address) as session:
        (name,) = names_of(session)
        for given in ([1, 2], [1.0, 2.0]):
            np.testing.assert_array_equal(session.run({"x": given})[name], [2, 3])
        for given in ([1.5, 2.0], [math.nan, 2.0], [2.0**40, 2.0]):
            with pytest.raises(
                InvalidParameter, match=r"input 'x': (there are numbers that are not whole|numbers from)"
            ):
                session.run({"x": given})


class Odd:
    """Its `__array__` raises."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise self._error


class Own(Exception):
    """What an application raises itself."""


@pytest.mark.usefixtures("gives_all_memory_back")
@pytest.mark.parametrize("own", [KeyError, Own, TypeError, UnavailableDevice])
def test_errors_of_what_is_given(own: type[Exception], shared_daemon: DaemonProcess) -> None:
    """Of a session and of an executor: InvalidParameter with the error as its cause, errors of ours as what they are;
    and the tensors of the run are let go of."""
    error, kind = own("why"), own if own is UnavailableDevice else InvalidParameter
    model = Model()
    inputs = [model.input((1, 4), name=name) for name in ("x", "y")]
    model.specify_inputs_and_outputs(inputs, [model.apply(OperationType.ADD, *inputs)])
    model.finish()
    desc = TensorDesc(DataType.FLOAT32, X.shape)
    with load(model, shared_daemon.address) as session, Tensor(session.device, desc) as tensor:
        executor: Any = executor_of(session)
        executor.set_on_run_done(lambda *_: None)
        for given in (Odd(error), [Odd(error)]):
            runs: list[Callable[[Any], Any]] = [
                session.run,
                session.submit,
                lambda feed: asyncio.run(session.run_async(feed)),
                executor.run_sync,
                executor.submit,
                lambda feed: executor.run_async(feed, timeout_ms=10_000, user_data=1),
            ]
            for run in runs:
                with pytest.raises(kind, match="'x'") as raised:
                    run({"x": given, "y": tensor})
                assert raised.value.__cause__ is error
                del raised
        assert not runs_left()
    error.__traceback__ = None  # Its frames refer to the tensor.
    gc.collect()


# ---- the death of the daemon


def test_it_is_loaded_again(start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the next device of NNRT_DEVICES, by whichever run comes next."""
    first, second = start_daemon(), start_daemon()
    monkeypatch.setenv("NNRT_DEVICES", f"{first.address},{second.address}")
    with load(sums_model(), on_death="reload", ways=iter(["operators"])) as session:
        name = names_of(session)[0]
        assert session.device.address == first.address
        first.kill()
        until(lambda: not session.device.is_connected)
        np.testing.assert_array_equal(session.run({"x": X})[name], X + 1)
        assert session.device.address == second.address
        assert names_of(session)[0] == name
        (outputs,) = asyncio.run(gathered(session, 1))
        np.testing.assert_array_equal(outputs[name], np.ones((1, 4), "f4"))
        second.kill()
        until(lambda: not session.device.is_connected)
        with pytest.raises(UnavailableDevice, match="the model can't be loaded again: no device answers"):
            session.run({"x": X})
        with pytest.raises(UnavailableDevice, match="can't be loaded again"):
            session.submit({"x": X}).result(20)


def test_on_the_restarted_daemon(start_daemon: StartDaemon, tmp_path: Path) -> None:
    listen = f"unix:{tmp_path / 'd'}"
    daemon = start_daemon(listen=listen)
    with load(sums_model(), daemon.address, on_death="reload") as session:
        name = names_of(session)[0]
        for _ in range(2):
            daemon.kill()
            daemon = start_daemon(listen=listen)
            until(lambda: not session.device.is_connected)
            (outputs,) = asyncio.run(gathered(session, 1))
            np.testing.assert_array_equal(outputs[name], np.ones((1, 4), "f4"))


@pytest.mark.parametrize("by_device", [False, True], ids=["address", "Device"])
def test_the_log_of_a_death(
    start_daemon: StartDaemon, tmp_path: Path, caplog: pytest.LogCaptureFixture, by_device: bool
) -> None:
    """However many runs come while the daemon is away: a warning when that begins, and one when it is over."""
    listen = f"unix:{tmp_path / 'd'}"
    daemon = start_daemon(listen=listen)
    with Runtime([daemon.address]) as runtime:
        device = runtime.device() if by_device else daemon.address
        with load(sums_model(), device, on_death="reload", cache=False) as session:
            daemon.kill()
            until(lambda: not session.device.is_connected)
            for _ in range(300):
                with pytest.raises(UnavailableDevice, match=r"can't be loaded again: .*; a run tries it again in"):
                    session.run({"x": X})
            start_daemon(listen=listen)

            def runs() -> bool:
                with suppress(UnavailableDevice):
                    return bool(session.run({"x": X}))
                return False

            until(runs)
            session.run({"x": X})
    first, second = (record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    assert "the daemon died, and the model can't be loaded again" in first
    assert re.fullmatch(r"the model is loaded again, after \d+\.\d s", second)


def test_attempts_to_load_a_model_again() -> None:
    """The first at once, the next ones ever more rarely, and never more than some seconds apart."""
    now, attempts = 0.0, list[float]()

    def load_again() -> str:
        attempts.append(now)
        if now < 60:
            raise OperationFailed("nobody is there")
        return "loaded"

    outage, came = Outage(lambda: now), ""
    while not came:
        try:
            came = outage.end(load_again)
        except UnavailableDevice as error:
            assert "nobody is there" in str(error)
            now += 1 / 128
    waits = np.diff(attempts)
    assert attempts[0] == 0
    assert 0.04 <= waits[0] <= 0.07
    assert 1.6 <= waits[10:].min() < waits[10:].max() <= 2.41  # Not all the same.


def test_the_log_of_a_runtime(start_daemon: StartDaemon, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each absence is told once, and its end; nothing where an error says it."""
    listen = f"unix:{tmp_path / 'd'}"
    first, other = start_daemon(listen=listen), start_daemon("--name", "other")
    with Runtime([first.address, other.address]) as runtime:
        name = runtime.device().name
        first.kill()
        until(lambda: len(runtime.devices()) == 1)
        for _ in range(3):
            runtime.devices()
        start_daemon(listen=listen)
        until(lambda: len(runtime.devices()) == 2)
    away, back = (record.getMessage() for record in caplog.records)
    assert away.startswith(f"no device at {first.address}: ")
    assert re.fullmatch(rf"{name} is back at {first.address}, after \d+\.\d s", back)
    caplog.clear()
    with Runtime(["127.0.0.1:1"]) as runtime:
        for _ in range(3):
            with pytest.raises(UnavailableDevice, match="no daemon answers there"):
                runtime.device()
    assert not caplog.records


def test_runs_that_are_lost_and_runs_that_go_on(start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the daemon had raise, once; those that waited for a stream are made on the next device."""
    first, second = start_daemon("--backend", "slow"), start_daemon()
    monkeypatch.setenv("NNRT_DEVICES", f"{first.address},{second.address}")
    count = 64

    async def ends(session: ModelSession) -> list[Any]:
        tasks = [asyncio.create_task(session.run_async({"x": [float(at)]})) for at in range(count)]
        await asyncio.sleep(0)
        with Observer(first.address) as observer:
            observer.wait_for(lambda state: state.running == 1)
        first.kill()
        return await asyncio.gather(*tasks, return_exceptions=True)

    with load(identity_model(), on_death="reload") as session:
        (name,) = names_of(session)
        results = asyncio.run(ends(session))
        lost = [end for end in results if isinstance(end, UnavailableDevice)]
        made = [(at, end[name].tolist()) for at, end in enumerate(results) if not isinstance(end, BaseException)]
        assert len(lost) + len(made) == count
        assert lost and made
        assert made == [(at, [float(at)]) for at, _ in made]
        assert session.run({"x": [7.0]})[name].tolist() == [7.0]


def test_a_run_with_tensors_does_not_go_on(start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = start_daemon("--backend", "slow"), start_daemon()
    monkeypatch.setenv("NNRT_DEVICES", f"{first.address},{second.address}")

    async def ends(session: ModelSession, tensor: Tensor) -> list[Any]:
        tasks = [asyncio.create_task(session.run_async({"x": tensor})) for _ in range(64)]
        await asyncio.sleep(0)
        first.kill()
        return await asyncio.gather(*tasks, return_exceptions=True)

    desc = TensorDesc(DataType.FLOAT32, [1])
    with load(identity_model(), on_death="reload") as session, Tensor(session.device, desc) as tensor:
        assert all(isinstance(end, UnavailableDevice) for end in asyncio.run(ends(session, tensor)))


def test_nobody_waits_longer_than_it_wants_for_a_model_that_is_being_loaded(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    """Neither a run with a deadline, nor `close`; and runs that wait have no threads of their own."""
    listen, gate = f"unix:{tmp_path / 'd'}", Gate(tmp_path)
    arguments = "--backend", "building", "--option", f"gate={gate.path}"
    daemon = start_daemon(*arguments, listen=listen)
    with load(identity_model(), daemon.address, on_death="reload") as session:
        daemon.kill()
        gate.shut()
        start_daemon(*arguments, listen=listen)
        until(lambda: not session.device.is_connected)
        waiting = [session.submit([[1.0]]) for _ in range(20)]
        for call in (
            BlockedCall(lambda: session.run([[1.0]], timeout_ms=50)),
            BlockedCall(lambda: session.submit([[1.0]], timeout_ms=50).result()),
        ):
            error = call.wait().error
            assert isinstance(error, UnavailableDevice)
            assert error.message.startswith("no device of the pool has the model")
        assert sum(thread.name == "nnrt-reload" for thread in threading.enumerate()) == 1
        unbounded = BlockedCall(lambda: session.run([[1.0]]))
        unbounded.require_blocked()
        BlockedCall(session.close).wait()
        for run in waiting:
            with pytest.raises(OperationFailed, match="the session was closed"):
                run.result(20)
        assert isinstance(unbounded.wait().error, OperationFailed)
        gate.release(lambda: not any(thread.name == "nnrt-reload" for thread in threading.enumerate()))


def test_no_thread_is_left_to_load_it_again(
    start_daemon: StartDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs that come just then fail; a later one loads it."""
    listen = f"unix:{tmp_path / 'd'}"
    daemon = start_daemon(listen=listen)
    start = threading.Thread.start

    def start_unless(thread: threading.Thread) -> None:
        if thread.name == "nnrt-reload":
            raise RuntimeError("can't start new thread")
        start(thread)

    with load(identity_model(), daemon.address, on_death="reload") as session:
        daemon.kill()
        start_daemon(listen=listen)
        until(lambda: not session.device.is_connected)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start_unless)
            runs: list[Callable[[], object]] = [
                lambda: session.run([[1.0]]),
                lambda: session.submit([[1.0]]).result(20),
            ]
            for run in runs:
                with pytest.raises(OutOfMemory, match="can't be loaded again: can't start new thread"):
                    run()
            assert not runs_left()
        (output,) = session.run([[1.0]]).values()
        assert output.tolist() == [1.0]


def test_on_death(shared_daemon: DaemonProcess) -> None:
    with pytest.raises(InvalidParameter, match="on_death is 'wait'; use 'raise' or 'reload'"):
        load(sums_model(), shared_daemon.address, on_death="wait")  # type: ignore[arg-type]
    with pytest.raises(UnavailableDevice, match=r"device at 127.0.0.1:1: no daemon answers there"):
        load(sums_model(), "127.0.0.1:1", on_death="reload")
