"""Guarantees of an executor: one outcome per run, in time, and the right result in any thread."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocked_call import BlockedCall
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from observer import Observer
from recorder import Recorder

from nnrt_client import (
    Compilation,
    DataType,
    Executor,
    InvalidParameter,
    Model,
    NnrtError,
    NullPointer,
    OperationFailed,
    OperationForbidden,
    OperationType,
    OutOfMemory,
    Runtime,
    TimedOut,
    UnavailableDevice,
)
from nnrt_client.run import run as runs

ONE = np.ones(1, np.float32)
LONG_MS = 600_000


@pytest.fixture(scope="module")
def slow_daemon() -> Iterator[DaemonProcess]:
    """Daemon whose runs, one at a time, end only by cancellation or by their deadline."""
    daemon = DaemonProcess("--backend", "slow")
    yield daemon
    daemon.kill()


@pytest.fixture
def slow(slow_daemon: DaemonProcess) -> Iterator[Executor]:
    with (
        Runtime([slow_daemon.address]) as runtime,
        Compilation(identity_model(), runtime.device()) as compilation,
    ):
        compilation.build()
        with Executor(compilation) as executor:
            yield executor


@pytest.fixture
def observer(slow_daemon: DaemonProcess) -> Iterator[Observer]:
    with Observer(slow_daemon.address) as observer:
        yield observer


@pytest.fixture
def compilation(runtime: Runtime) -> Iterator[Compilation]:
    """Built identity on the reference backend."""
    with Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        yield compilation


@pytest.fixture
def executor(compilation: Compilation) -> Iterator[Executor]:
    with Executor(compilation) as executor:
        yield executor


def two_input_model() -> Model:
    """Build z = x - y for a vector and a scalar."""
    model = Model()
    x = model.input((-1, 2), name="x")
    y = model.input((1,), name="y")
    z = model.apply(OperationType.SUB, x, y)
    model.specify_inputs_and_outputs([x, y], [z])
    model.finish()
    return model


# ---- time


def test_timeout_ends_a_run_once_and_on_the_device_too(slow: Executor, observer: Observer) -> None:
    """TimedOut through on_run_done, in time; the device is free again; no other callback follows."""
    recorder = Recorder()
    recorder.watch(slow)
    started_at = time.monotonic()
    slow.run_async([ONE], timeout_ms=200, user_data="run")
    recorder.wait(1)
    assert recorder.last_at - started_at >= 0.19
    assert type(recorder.error("run")) is TimedOut
    observer.wait_for(lambda state: state.running == 0)
    with pytest.raises(TimedOut):
        slow.run_sync([ONE], timeout_ms=10)
    assert recorder.count == 1


def test_late_result_never_arrives(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """A device without cancellation finishes a run too late: the caller gets TimedOut, and nothing else."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}")
    recorder = Recorder()
    with (
        Observer(daemon.address) as observer,
        Runtime([daemon.address]) as runtime,
        Compilation(identity_model(), runtime.device()) as compilation,
    ):
        compilation.build()
        with recorder.watch(Executor(compilation)) as executor:
            executor.run_async([ONE], timeout_ms=100, user_data="late")
            recorder.wait(1)
            gate.write_bytes(b"")
            observer.wait_for(lambda state: state.running == 0)
            after = BlockedCall(lambda: executor.run_sync([ONE * 2]))
            gate.write_bytes(b"")
            np.testing.assert_array_equal(after.wait().result, [ONE * 2])
    assert recorder.count == 1
    assert type(recorder.error("late")) is TimedOut


def test_expired_work_never_starts(slow: Executor, slow_daemon: DaemonProcess, observer: Observer) -> None:
    """A run whose deadline passes in the queue gets TimedOut, and never reaches the backend."""
    recorder = Recorder()
    recorder.watch(slow)
    slow.run_async([ONE * 10], timeout_ms=LONG_MS, user_data="first")
    observer.wait_for(lambda state: state.running == 1)
    slow.run_async([ONE * 11], timeout_ms=100, user_data="expires in the daemon")
    for run in range(8):  # More runs than streams.
        slow.run_async([ONE * 12], timeout_ms=100, user_data=run)
    recorder.wait(9)
    assert {type(recorder.error(user_data)) for user_data in recorder.done} == {TimedOut}
    observer.wait_for(lambda state: (state.running, state.queued) == (1, 0))
    slow.close()
    recorder.wait(10)
    log = slow_daemon.log()
    assert "run started with 10.0" in log
    assert "run started with 11.0" not in log
    assert "run started with 12.0" not in log


def test_ended_runs_do_not_use_up_the_run_streams(slow: Executor) -> None:
    """A client may start new runs at once after giving up others, which the daemon is still ending."""
    for _ in range(60):
        futures = [slow.submit([ONE]) for _ in range(6)]
        assert all(future.cancel() for future in futures), [future.exception() for future in futures]


def test_a_longer_timeout_than_the_wire_can_carry(executor: Executor) -> None:
    """Timeouts of 2^32 ms and more are valid."""
    np.testing.assert_array_equal(executor.run_sync([ONE], timeout_ms=2**40), [ONE])


# ---- closing


def test_close_ends_the_runs_in_flight_before_it_returns(slow: Executor, observer: Observer) -> None:
    """Each gets OperationFailed through on_run_done, whether it runs, or is queued in the daemon or in the client."""
    recorder = Recorder()
    recorder.watch(slow)
    for run in range(20):
        slow.run_async([ONE], timeout_ms=LONG_MS, user_data=run)
    observer.wait_for(lambda state: (state.running, state.queued) == (1, 5))
    slow.close()
    assert {type(recorder.error(run)) for run in range(20)} == {OperationFailed}
    assert recorder.count == 20
    observer.wait_for(lambda state: (state.running, state.queued) == (0, 0))
    with pytest.raises(OperationForbidden, match="closed"):
        slow.run_async([ONE], timeout_ms=LONG_MS, user_data="late")
    slow.close()


def test_close_from_its_own_callback(slow: Executor, observer: Observer) -> None:
    """`close` doesn't wait for the callback that calls it; other runs still get theirs."""
    recorder = Recorder()
    closed = threading.Event()

    def close(user_data: Any, outputs: Any, error: Any) -> None:
        slow.close()
        closed.set()

    slow.set_on_run_done(close)
    slow.run_async([ONE], timeout_ms=50, user_data="closes")
    recorder.watch(slow)
    for run in range(5):
        slow.run_async([ONE], timeout_ms=LONG_MS, user_data=run)
    assert closed.wait(10)
    recorder.wait(5)
    assert {type(recorder.error(run)) for run in range(5)} == {OperationFailed}


def test_callbacks_that_close_each_others_executors(compilation: Compilation) -> None:
    """`close` doesn't wait in a callback: two callbacks that wait for each other would never end."""
    both_inside = threading.Barrier(2, timeout=10)
    ended = threading.Semaphore(0)
    executors = [Executor(compilation), Executor(compilation)]

    def close(other: Executor, *_: Any) -> None:
        both_inside.wait()
        other.close()
        ended.release()

    for mine, other in (executors, reversed(executors)):
        mine.set_on_run_done(close)
        mine.run_async([ONE], timeout_ms=LONG_MS, user_data=other)
    assert ended.acquire(timeout=10)
    assert ended.acquire(timeout=10)


def test_close_races_with_runs(compilation: Compilation) -> None:
    """Every accepted run gets its callback before `close` returns."""
    for _ in range(30):
        recorder = Recorder()
        executor = recorder.watch(Executor(compilation))
        accepted: list[int] = []
        started = threading.Event()

        def submit_until_closed(
            executor: Executor = executor, accepted: list[int] = accepted, started: threading.Event = started
        ) -> None:
            for run in range(10_000):
                try:
                    executor.run_async([ONE], timeout_ms=LONG_MS, user_data=run)
                except OperationForbidden:
                    return
                accepted.append(run)
                started.set()

        thread = threading.Thread(target=submit_until_closed)
        thread.start()
        started.wait(10)
        executor.close()
        count = recorder.count
        thread.join()
        assert count == recorder.count == len(accepted)


def test_runtime_closed_under_runs(slow_daemon: DaemonProcess) -> None:
    """Closing the runtime ends every run, and executors can still be closed afterwards."""
    recorder = Recorder()
    with Runtime([slow_daemon.address]) as runtime, ExitStack() as stack:
        compilation = stack.enter_context(Compilation(identity_model(), runtime.device()))
        compilation.build()
        executor = recorder.watch(stack.enter_context(Executor(compilation)), died=False)
        for run in range(10):
            executor.run_async([ONE], timeout_ms=LONG_MS, user_data=run)
        blocked = BlockedCall(lambda: executor.run_sync([ONE]))
        blocked.require_blocked()
        futures = [executor.submit([ONE]) for _ in range(5)]
        runtime.close()
        assert all(future.done() for future in futures)
        assert {type(future.exception()) for future in futures} == {UnavailableDevice}
        assert "the session was closed" in str(blocked.wait().error)
    assert {type(recorder.error(run)) for run in range(10)} == {UnavailableDevice}


# ---- callbacks


def test_callbacks_may_run(executor: Executor) -> None:
    """A callback may call anything, also run_sync and run_async, any number of times."""
    recorder = Recorder()

    def run_again(user_data: int, outputs: Any, error: Any) -> None:
        recorder.on_run_done(user_data, executor.run_sync([outputs[0] + 1]), error)

    executor.set_on_run_done(run_again)
    for run in range(20):
        executor.run_async([ONE * run], timeout_ms=LONG_MS, user_data=run)
    recorder.wait(20)
    for run in range(20):
        np.testing.assert_array_equal(recorder.outputs(run), [ONE * (run + 1)])


def test_exception_in_a_callback_is_logged(executor: Executor, caplog: pytest.LogCaptureFixture) -> None:
    """It belongs to the application; runs go on."""

    def fail(user_data: Any, outputs: Any, error: Any) -> None:
        raise ZeroDivisionError("the application's mistake")

    executor.set_on_run_done(fail)
    with caplog.at_level(logging.ERROR):
        executor.run_async([ONE], timeout_ms=LONG_MS, user_data="run")
        executor.close()
    assert "the application's mistake" in caplog.text
    assert "'run'" in caplog.text


def test_callbacks_get_the_very_user_data_and_run_elsewhere(executor: Executor) -> None:
    """The callback gets the same object, in another thread than the caller's."""
    called: Future[tuple[Any, threading.Thread]] = Future()
    executor.set_on_run_done(
        lambda user_data, outputs, error: called.set_result((user_data, threading.current_thread()))
    )
    user_data = object()
    executor.run_async([ONE], timeout_ms=LONG_MS, user_data=user_data)
    given, thread = called.result(10)
    assert given is user_data
    assert thread is not threading.current_thread()


def test_a_run_keeps_the_callbacks_it_started_with(slow: Executor) -> None:
    """New callbacks apply to later runs only."""
    before, after = Recorder(), Recorder()
    before.watch(slow)
    slow.run_async([ONE], timeout_ms=LONG_MS, user_data="run")
    after.watch(slow)
    slow.close()
    assert (before.count, after.count) == (1, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 0.5, float("inf"), float("nan"), "1"])
def test_timeouts_that_are_none(executor: Executor, timeout_ms: Any) -> None:
    """An invalid timeout is refused before anything is sent, and loses no stream."""
    for _ in range(20):
        with pytest.raises(InvalidParameter, match=r"timeout_ms is .*; use a whole number of 1 or more"):
            executor.submit([ONE], timeout_ms=timeout_ms)
    np.testing.assert_array_equal(executor.run_sync([ONE], timeout_ms=2**63), [ONE])


@pytest.mark.parametrize(
    ("timeout_ms", "user_data", "error", "message"),
    [
        (None, "run", InvalidParameter, r"timeout_ms is None; use a whole number of 1 or more$"),
        (LONG_MS, None, InvalidParameter, "user_data is None"),
        (0, "run", InvalidParameter, "timeout_ms is 0"),
        (-1, "run", InvalidParameter, "timeout_ms is -1"),
    ],
)
def test_asynchronous_run_refuses(
    executor: Executor, timeout_ms: int, user_data: Any, error: type[NnrtError], message: str
) -> None:
    """A run without user data or without a valid timeout is refused, without a callback."""
    recorder = Recorder()
    recorder.watch(executor)
    with pytest.raises(error, match=message):
        executor.run_async([ONE], timeout_ms=timeout_ms, user_data=user_data)
    executor.close()
    assert recorder.count == 0


def test_asynchronous_run_without_a_callback(executor: Executor) -> None:
    """Without on_run_done nobody would get the result; on_service_died isn't enough."""
    executor.set_on_service_died(lambda user_data: None)
    with pytest.raises(OperationForbidden, match="no on_run_done is set"):
        executor.run_async([ONE], timeout_ms=LONG_MS, user_data="run")


# ---- futures


def test_submit_gives_a_future(executor: Executor) -> None:
    """Its result is the outputs; asyncio can await it."""

    async def gather() -> list[Any]:
        return await asyncio.gather(*(asyncio.wrap_future(executor.submit([ONE * run])) for run in range(10)))

    for run, outputs in enumerate(asyncio.run(gather())):
        np.testing.assert_array_equal(outputs, [ONE * run])


@pytest.mark.parametrize("where", ["on the device", "queued in the daemon", "queued in the client"])
def test_cancelled_future_ends_its_run(slow: Executor, observer: Observer, where: str) -> None:
    """A future can be cancelled in any state of its run, without affecting others."""
    ahead = {"on the device": 0, "queued in the daemon": 3, "queued in the client": 9}[where]
    others = [slow.submit([ONE]) for _ in range(ahead)]
    if ahead:
        observer.wait_for(lambda state: (state.running, state.queued) == (1, min(ahead, 6) - 1))
    cancelled = slow.submit([ONE * 99])
    if where == "on the device":
        observer.wait_for(lambda state: state.running == 1)
    assert cancelled.cancel()
    with pytest.raises(CancelledError):
        cancelled.result(10)
    observer.wait_for(lambda state: state.running + state.queued == min(ahead, 6))
    assert not any(other.done() for other in others)
    following = slow.submit([ONE], timeout_ms=100)
    with pytest.raises(TimedOut):
        following.result(10)
    for other in others:
        assert other.cancel()
    observer.wait_for(lambda state: (state.running, state.queued) == (0, 0))


def test_cancelling_races_with_results(executor: Executor) -> None:
    """The future is either cancelled or has its result; the executor stays usable."""
    outcomes = set()
    for run in range(300):
        future = executor.submit([ONE * run])
        if run % 3:
            os.sched_yield()  # Lets the reader thread run, so that the moment of the cancellation varies.
        if future.cancel():
            outcomes.add("cancelled")
        else:
            np.testing.assert_array_equal(future.result(10), [ONE * run])
            outcomes.add("done")
    np.testing.assert_array_equal(executor.run_sync([ONE]), [ONE])
    assert "cancelled" in outcomes


def test_many_threads_share_an_executor(executor: Executor) -> None:
    """Each caller gets its own answer."""

    def run(caller: int) -> None:
        rng = np.random.default_rng(caller)
        for _ in range(40):
            x = rng.standard_normal(int(rng.integers(1, 2000)), np.float32)
            (y,) = executor.run_sync([x])
            np.testing.assert_array_equal(y, x)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(run, range(16)))


# ---- inputs and outputs


@pytest.fixture
def two_inputs(runtime: Runtime) -> Iterator[Executor]:
    with Compilation(two_input_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            yield executor


def test_inputs_by_name(two_inputs: Executor) -> None:
    """In any order, as anything that NumPy converts to the right array."""
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for given in ({"y": ONE, "x": x}, {"x": x[::-1][::-1], "y": ONE}):
        np.testing.assert_array_equal(two_inputs.run_sync(given), [x - 1])


@pytest.mark.parametrize(
    "x",
    [
        pytest.param(np.asfortranarray(np.arange(6, dtype=np.float32).reshape(3, 2)), id="column by column"),
        pytest.param(np.arange(24, dtype=np.float32).reshape(6, 4)[::2, ::2], id="strided"),
        pytest.param(np.arange(6, dtype=">f4").reshape(3, 2), id="big-endian"),
        pytest.param(np.broadcast_to(np.float32(7), (3, 2)), id="broadcast"),
        pytest.param(np.empty((0, 2), np.float32), id="empty"),
    ],
)
def test_layout_of_an_input_does_not_matter(two_inputs: Executor, x: Any) -> None:
    """An array's memory layout doesn't matter."""
    np.testing.assert_array_equal(two_inputs.run_sync([x, ONE]), [x - 1])


Run = Callable[[Executor, Any], Any]


def run_async(executor: Executor, inputs: Any) -> None:
    executor.set_on_run_done(lambda *_: pytest.fail("a refused run was called back"))
    executor.run_async(inputs, timeout_ms=LONG_MS, user_data="run")


@pytest.mark.parametrize("run", [Executor.run_sync, Executor.submit, run_async])
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        pytest.param([], "0 inputs were given; the model takes 2", id="none"),
        pytest.param([ONE], "1 inputs were given; the model takes 2", id="too few"),
        pytest.param([ONE] * 3, "3 inputs were given; the model takes 2", id="too many"),
        pytest.param({"x": ONE}, r"inputs are named \['x'\]; the model's are \['x', 'y'\]", id="name missing"),
        pytest.param({"x": ONE, "y": ONE, "z": ONE}, r"inputs are named \['x', 'y', 'z'\]", id="name too many"),
        pytest.param(
            [np.zeros((1, 2)), ONE],
            r"input 0 'x': it is float64\[1, 2\]; the model takes FLOAT32.*astype.np.float32",
            id="data type",
        ),
        pytest.param([np.zeros((1, 3), np.float32), ONE], r"input 0 'x': it is float32\[1, 3\]", id="size"),
        pytest.param([ONE, ONE], r"input 0 'x': it is float32\[1\]", id="rank"),
        pytest.param([np.zeros((1, 2), np.float32), None], "input 1 'y': it is None; give an array", id="nothing"),
        pytest.param([np.zeros((1, 2), np.float32), ["a"]], "input 1 'y': .*<U1", id="text"),
        pytest.param([[[1, 2], [3]], ONE], "input 0 'x': .*inhomogeneous", id="ragged"),
        pytest.param(None, "inputs are None; give a sequence of arrays, or a mapping by name", id="not a sequence"),
    ],
)
def test_wrong_inputs(two_inputs: Executor, run: Run, inputs: Any, message: str) -> None:
    """InvalidParameter or NullPointer before anything is sent; the executor stays usable."""
    with pytest.raises((InvalidParameter, NullPointer), match=message):
        run(two_inputs, inputs)
    np.testing.assert_array_equal(two_inputs.run_sync([np.ones((1, 2), np.float32), ONE]), [[[0, 0]]])


def test_empty_names(runtime: Runtime) -> None:
    """Inputs without names can't be given by name."""
    model = Model()
    x, y = model.input((1,)), model.input((1,))
    model.specify_inputs_and_outputs([x, y], [model.apply(OperationType.ADD, x, y)])
    model.finish()
    with Compilation(model, runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor, pytest.raises(InvalidParameter, match="named"):
            executor.run_sync({"": ONE})


def test_shapes_belong_to_a_result(executor: Executor) -> None:
    """Each run has its own output shapes; the model's declared ones don't change."""
    assert (executor.input_count, executor.output_count) == (1, 1)
    runs = [executor.submit([np.zeros(size, np.float32)]) for size in (5, 3)]
    assert [run.result(10).shapes for run in runs] == [((5,),), ((3,),)]
    assert executor.output_desc(0).shape == (-1,)
    shapes: Future[Any] = Future()
    executor.set_on_run_done(lambda _, outputs, error: shapes.set_result(outputs.shapes))
    executor.run_async([np.zeros(7, np.float32)], timeout_ms=LONG_MS, user_data="run")
    assert shapes.result(10) == ((7,),)


@pytest.mark.parametrize("index", [-1, 1])
def test_index_out_of_range(executor: Executor, index: int) -> None:
    """Each getter's error names the valid indices."""
    for getter in (executor.input_desc, executor.output_desc, executor.input_dim_range):
        with pytest.raises(InvalidParameter, match=rf"index is {index}; use 0\.\.0"):
            getter(index)


def test_descs_are_the_callers_own(executor: Executor) -> None:
    """Changing a returned desc changes nothing else."""
    desc = executor.input_desc(0)
    assert (desc.name, desc.data_type, desc.shape) == ("x", DataType.FLOAT32, (-1,))
    desc.shape = [3]
    assert executor.input_desc(0).shape == (-1,)


def test_input_dim_range(start_daemon: StartDaemon) -> None:
    """The ranges are the backend's; OperationForbidden if it reports none."""
    cached, slow = start_daemon("--backend", "cached"), start_daemon("--backend", "silent")
    with Runtime([cached.address, slow.address]) as runtime, ExitStack() as stack:
        executors = []
        for device in runtime.devices():
            compilation = stack.enter_context(Compilation(identity_model(), device))
            compilation.build()
            executors.append(stack.enter_context(Executor(compilation)))
        assert executors[0].input_dim_range(0) == ((1,), (64,))
        with pytest.raises(OperationForbidden):
            executors[1].input_dim_range(0)


def test_outputs_are_read_only(executor: Executor) -> None:
    """They are views of the daemon's reply."""
    (y,) = executor.run_sync([ONE])
    with pytest.raises(ValueError, match="read-only"):
        y[0] = 2


def test_executors_outlive_their_compilation(runtime: Runtime) -> None:
    """A closed compilation's model lives until its last executor is closed."""
    compilation = Compilation(identity_model(), runtime.device())
    compilation.build()
    first, second = Executor(compilation), Executor(compilation)
    compilation.close()
    with pytest.raises(OperationForbidden):
        Executor(compilation)
    first.close()
    np.testing.assert_array_equal(second.run_sync([ONE]), [ONE])
    second.close()
    with pytest.raises(OperationForbidden, match="closed"):
        second.run_sync([ONE])


def test_input_larger_than_the_session_may_hold(start_daemon: StartDaemon) -> None:
    """The run is refused with a reason, and the executor stays usable."""
    daemon = start_daemon("--session-bytes", "2000000")
    with Runtime([daemon.address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            with pytest.raises(OutOfMemory, match="4194304 more bytes pass this session's limit of 2000000"):
                executor.run_sync([np.zeros(1 << 20, np.float32)])
            np.testing.assert_array_equal(executor.run_sync([ONE]), [ONE])


@pytest.mark.parametrize("begin", ["submit", "run_async"])
def test_closed_before_a_run_begins(compilation: Compilation, monkeypatch: pytest.MonkeyPatch, begin: str) -> None:
    """A run after `close` is refused, without a future or callback that would never be settled."""
    recorder = Recorder()
    executor = recorder.watch(Executor(compilation))
    set_on_ended = runs.Run.set_on_ended

    def closed_meanwhile(run: runs.Run, *arguments: Any, **options: Any) -> bool:
        executor.close()
        assert run.ended.wait(10)
        return set_on_ended(run, *arguments, **options)

    monkeypatch.setattr(runs.Run, "set_on_ended", closed_meanwhile)
    with pytest.raises(OperationForbidden, match="the executor is closed"):
        if begin == "submit":
            executor.submit([ONE])
        else:
            executor.run_async([ONE], timeout_ms=LONG_MS, user_data="mine")
    executor.close()
