"""Runs on the local socket where it falls short: a daemon that is stopped, packets too long, connections too few."""

import errno
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from shared_memory import descriptors_of
from tensor_runs import compiled
from waiting import until

from nnrt_client import (
    ConnectionFailed,
    DataType,
    Model,
    OperationFailed,
    OperationType,
    OutOfMemory,
    ResidentTensor,
    Settings,
    Tensor,
    TensorDesc,
    UnavailableDevice,
    load,
)
from nnrt_client.run import link
from nnrt_client.run.run import Run
from nnrt_client.run.session_dispatcher import SessionDispatcher
from nnrt_client.session import staging_pool
from nnrt_client.session.device import session_of
from nnrt_client.session.local_socket import LocalConnection
from nnrt_client.session.session import Session
from nnrt_client.session.staging_pool import StagingPool
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.v2 import local_socket_pb2

ONE = np.ones(1, np.float32)
# Too large for a socket with little room, and small enough for a packet of most.
SMALL = np.ones(1500, np.float32)
# Too large for a packet, so that memory must be shared.
LARGE = np.ones(1 << 16, np.float32)
DEADLINE_S = 30.0
LONG_S = 600.0


def test_a_daemon_stops_while_memory_is_shared(start_daemon: StartDaemon) -> None:
    """A caller that waits for its answer is told of its death, and the session ends."""
    daemon = start_daemon("--backend", "cached")
    settings = Settings(heartbeat_timeout_s=0.5, reconnect_timeout_s=0.5)
    with ThreadPoolExecutor(3) as threads, ExitStack() as closing:
        _, executor = compiled(closing, daemon.address, settings=settings)
        executor.run_sync([ONE])
        daemon.send(signal.SIGSTOP)
        closing.callback(daemon.send, signal.SIGCONT)
        for run in [threads.submit(executor.run_sync, [LARGE]) for _ in range(3)]:
            with pytest.raises(UnavailableDevice):
                run.result(DEADLINE_S)


def refused_for_want_of_memory(connection: LocalConnection) -> None:
    def send(data: bytes) -> int:
        raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))

    connection.send = send


def refused_as_too_long(connection: LocalConnection) -> None:
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    with pytest.raises(OSError, match=os.strerror(errno.EMSGSIZE)):
        connection.send(bytes(SMALL.nbytes))


@pytest.mark.parametrize("refused", [refused_for_want_of_memory, refused_as_too_long])
@pytest.mark.parametrize("way", ["run_sync", "from a thread", "submit", "sharing packets", "with tensors"])
def test_a_packet_that_the_system_does_not_take(
    cached_daemon: DaemonProcess,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    refused: Callable[[LocalConnection], None],
) -> None:
    """Its run goes another way at once, for the daemon has nothing of it; nobody waits for a verdict."""
    begun = list[LocalConnection]()

    class Refusing(LocalConnection):
        is_refusing = way != "sharing packets"

        def __init__(self, session: Session) -> None:
            super().__init__(session)
            begun.append(self)
            if self.is_refusing:
                refused(self)

    with ThreadPoolExecutor(1) as threads, ExitStack() as closing:
        device, executor = compiled(closing, cached_daemon.address, settings=Settings(verdict_timeout_s=LONG_S))
        monkeypatch.setattr(link, "LocalConnection", Refusing)
        if way == "sharing packets":  # As runs go whose description the daemon has, on a connection that exists.
            for _ in range(2):
                executor.submit([SMALL]).result(DEADLINE_S)
            Refusing.is_refusing = True
            for connection in begun:
                refused(connection)
        if way == "with tensors":
            target = closing.enter_context(Tensor(device, TensorDesc(DataType.FLOAT32, SMALL.shape)))
            executor.submit([SMALL], [target]).result(DEADLINE_S)
            np.testing.assert_array_equal(target.numpy(), SMALL)
        elif way == "run_sync":
            np.testing.assert_array_equal(executor.run_sync([SMALL])[0], SMALL)
        elif way == "from a thread":
            (output,) = threads.submit(executor.run_sync, [SMALL]).result(DEADLINE_S)
            np.testing.assert_array_equal(output, SMALL)
        else:
            runs = [executor.submit([SMALL + number]) for number in range(3)]
            for number, run in enumerate(runs):
                np.testing.assert_array_equal(run.result(DEADLINE_S)[0], SMALL + number)
        assert begun


def test_memory_of_a_closed_runtime(shared_daemon: DaemonProcess) -> None:
    """Memory that arrays went through is freed, though the executor is still there; a result lives on."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address)
        before = staged()
        (output,) = executor.run_sync([LARGE])
        (output,) = executor.run_sync([LARGE])
        assert staged() > before
    np.testing.assert_array_equal(output, LARGE)
    assert staged() - before <= 2  # The descriptors of one region: of its own, and of its mapping.
    del output
    assert staged() <= before


def test_memory_of_results_that_may_not_lie_idle(
    shared_daemon: DaemonProcess, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is freed with the last of them, though nobody runs the model again."""
    _, executor = compiled(closing, shared_daemon.address)
    for _ in range(2):
        (output,) = executor.run_sync([LARGE])
    before = staged()
    monkeypatch.setattr(staging_pool, "_MOST_IDLE_BYTES", output.nbytes)
    kept = [executor.run_sync([LARGE])[0] for _ in range(4)]
    assert staged() > before
    kept.clear()
    assert staged() <= before


def test_no_python_code_is_called_when_memory_goes(shared_daemon: DaemonProcess, closing: ExitStack) -> None:
    """What a signal handler raises there would be lost."""
    device, _ = compiled(closing, shared_daemon.address)
    local_socket = session_of(device).local_socket
    assert local_socket is not None
    called, memory, former = list[str](), SharedMemory.allocate(4096), sys.getprofile()
    local_socket.buffer_of(memory)
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    del memory
    sys.setprofile(former)
    assert not called


def test_the_room_for_an_output_that_varies(shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows its size before the first run, whose reply is fetched; those after it are written to memory."""
    start, started = Session.start, []

    def counted(session: Session, name: str, *arguments: Any) -> Any:
        started.append(name)
        return start(session, name, *arguments)

    monkeypatch.setattr(Session, "start", counted)
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address)
        for _ in range(3):
            np.testing.assert_array_equal(executor.run_sync([LARGE])[0], LARGE)
    assert started.count("PreparedModel.AwaitRun") == 1


def staged() -> int:
    """Descriptors of memory that arrays go through."""
    return descriptors_of("nnrt-staged")


def test_runs_that_wait_hold_no_memory(start_daemon: StartDaemon, shared_daemon: DaemonProcess) -> None:
    """Only those under way do; and all of them run."""
    under_way = 6
    with ExitStack() as closing:
        device, executor = compiled(closing, start_daemon("--backend", "slow").address)
        before = staged()
        runs = [executor.submit([LARGE]) for _ in range(100)]
        until(lambda: (device.state.running, device.state.queued) == (1, under_way - 1), lambda: device.state)
        assert staged() - before <= 2 * 2 * under_way  # Of an input and an output, and of their mappings.
        assert not any(run.done() for run in runs)
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address)
        runs = [executor.submit([LARGE * number]) for number in range(100)]
        for number, run in enumerate(runs):
            np.testing.assert_array_equal(run.result(DEADLINE_S)[0], LARGE * number)


def test_no_memory_for_runs_that_wait(shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """They go over gRPC."""
    take, taken = StagingPool.take, count()

    def take_some(staging: StagingPool, size_bytes: int) -> SharedMemory:
        if next(taken) >= 20:
            raise OutOfMemory("no memory for anybody")
        return take(staging, size_bytes)

    monkeypatch.setattr(StagingPool, "take", take_some)
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address)
        runs = [executor.submit([LARGE * number]) for number in range(100)]
        for number, run in enumerate(runs):
            np.testing.assert_array_equal(run.result(DEADLINE_S)[0], LARGE * number)


def test_a_callback_waits_for_a_run(shared_daemon: DaemonProcess) -> None:
    """It keeps nobody's reply waiting: neither those of other runs, nor its own."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address)
        again = Future[Any]()
        run = executor.submit([ONE])
        run.add_done_callback(lambda run: again.set_result(executor.submit(run.result()).result(DEADLINE_S)))
        assert again.result(DEADLINE_S)[0] == [1]


def test_a_signal_as_a_run_ends(shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection goes on with the next run."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address)
        finish = Run.finish

        def interrupted(run: Run, *reply: Any) -> None:
            finish(run, *reply)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Run, "finish", interrupted)
            with pytest.raises(KeyboardInterrupt):
                executor.run_sync([ONE])
        for number in range(20):
            np.testing.assert_array_equal(executor.run_sync([ONE * number])[0], ONE * number)


def test_a_signal_as_memory_is_shared(shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply that nobody has read is not taken for that of the next request."""
    receive, interrupts = socket.recv_fds, [KeyboardInterrupt()]

    def interrupted(*arguments: Any) -> Any:
        if interrupts:  # Once: buffers may be freed meanwhile.
            raise interrupts.pop()
        return receive(*arguments)

    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address)
        executor.run_sync([ONE])  # It has a link now.
        with monkeypatch.context() as patch:
            patch.setattr(socket, "recv_fds", interrupted)
            with pytest.raises(KeyboardInterrupt):
                executor.run_sync([LARGE])
        for number in range(3):
            np.testing.assert_array_equal(executor.run_sync([LARGE * number])[0], LARGE * number)


@pytest.mark.parametrize("reply", [b"\xff", local_socket_pb2.LocalReply(done=True).SerializeToString()])
def test_descriptors_that_a_daemon_gives_unasked(reply: bytes, tmp_path: Path) -> None:
    """They are not kept, whatever comes with them."""
    name = b"nnrt-test-" + os.urandom(8).hex().encode()
    there: Any = SimpleNamespace(
        place="daemon", settings=Settings(), welcome=SimpleNamespace(local_socket=name, session_id=b"1")
    )
    with ExitStack() as closing:
        listener = closing.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listener.bind(b"\0" + name)
        listener.listen()
        given = closing.enter_context((tmp_path / "given").open("w+b"))
        done = local_socket_pb2.LocalReply(done=True).SerializeToString()

        def answer() -> None:
            with listener.accept()[0] as connection:
                connection.recv(1000)
                connection.send(done)
                for _ in range(2):
                    connection.recv(1000)
                    socket.send_fds(connection, [reply], [given.fileno()])

        pool = closing.enter_context(ThreadPoolExecutor(1))
        answered = pool.submit(answer)
        side = LocalConnection(there)
        closing.callback(side.close)
        received = []
        for expected in (0, 1):
            with suppress(ConnectionFailed):
                received += side.ask(local_socket_pb2.LocalRequest(), expected=expected)[1]
        answered.result(DEADLINE_S)
        assert descriptors_of("/given") == 1 + len(received)
        assert len(received) == (reply == done)
        for fd in received:
            os.close(fd)


def test_no_descriptor_is_left(shared_daemon: DaemonProcess) -> None:
    """Runs that would need a connection go over gRPC."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        closing.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        lowest = os.dup(0)  # All below it are taken.
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
        (output,) = executor.run_sync([ONE], timeout_ms=20_000)
        assert output == [1]


def test_a_run_that_is_too_long_for_a_packet(shared_daemon: DaemonProcess) -> None:
    """Names travel too."""
    model = Model()
    inputs = [model.input((1,), name=f"{at}" + 500 * "n") for at in range(150)]
    model.specify_inputs_and_outputs(inputs, [model.apply(OperationType.ADD, inputs[0], inputs[149])])
    model.finish()
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, model)
        arrays = [np.full(1, at, np.float32) for at in range(150)]
        (output,) = executor.run_sync(arrays, timeout_ms=20_000)
        assert output == [149]
        (output,) = executor.submit(arrays).result(DEADLINE_S)
        assert output == [149]


def test_a_large_output_of_unknown_size(onnxruntime_daemon: DaemonProcess) -> None:
    """It comes over gRPC at first, and the large one beside it, which lies in shared memory, is an array all the same.
    From the second run on both lie there."""
    model = Model()
    inputs = [model.input((rows, 4), name=name) for name, rows in (("x", -1), ("z", 50_000))]
    model.specify_inputs_and_outputs(
        inputs, [model.apply(OperationType.ADD, x, np.array([1], np.float32)) for x in inputs]
    )
    model.finish()
    z = np.arange(200_000, dtype=np.float32).reshape(50_000, 4)
    with load(model, onnxruntime_daemon.address, cache=False) as session:
        local_socket = session_of(session.device).local_socket
        assert local_socket is not None
        for rows, leases in ((60_000, 1), (60_000, 2), (50_000, 2)):
            outputs = list(session.run([z[:1].repeat(rows, 0), z]).values())
            np.testing.assert_array_equal(outputs[0], z[:1].repeat(rows, 0) + 1)
            np.testing.assert_array_equal(outputs[1], z + 1)
            assert len(local_socket.staging.leases) == leases
            del outputs


def test_outputs_of_unknown_size_are_shared_from_the_second_run_on(
    shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first tells how large they are; only it fetches its reply over gRPC, and one that gives more than all lately:
    those in between may be as small as they like. (Those that came before know what room they need: not all of 70.)"""
    fetched: list[int] = []
    fetch = SessionDispatcher.fetch

    def counted(dispatcher: SessionDispatcher, run: Run, since: int) -> None:
        fetched.append(run.inputs[0].nbytes)
        fetch(dispatcher, run, since)

    monkeypatch.setattr(SessionDispatcher, "fetch", counted)
    shorter = [LARGE[:length] for length in range(1, 71)]
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address)
        for given in (LARGE[:-1], LARGE[:-1], ONE, LARGE[:-9], *[ONE] * 30, LARGE[:-1], *shorter, LARGE):
            (output,) = executor.run_sync([given])
            np.testing.assert_array_equal(output, given)
    assert fetched == [LARGE[:-1].nbytes, LARGE.nbytes]


def test_small_outputs_share_memory(onnxruntime_daemon: DaemonProcess) -> None:
    """It is used again when the last of them is gone, and not before."""
    model = Model()
    inputs = [model.input((-1, 16_000), name=name) for name in ("x", "y", "z")]
    model.specify_inputs_and_outputs(
        inputs, [model.apply(OperationType.ADD, x, np.array([1], np.float32)) for x in inputs]
    )
    model.finish()
    with load(model, onnxruntime_daemon.address, cache=False) as session:
        local_socket = session_of(session.device).local_socket
        assert local_socket is not None
        given = [np.full((1, 16_000), at, np.float32) for at in range(3)]
        session.run(given)  # Tells how large they are.
        kept = [*session.run(given).values()]
        assert len(local_socket.staging.leases) == 1
        for number in range(1, 5):  # Larger ones, and smaller ones again.
            more = [*session.run([one.repeat(number % 3 + 1, 0) + 3 for one in given]).values()]
            for at, output in enumerate(more):
                np.testing.assert_array_equal(output, np.full((number % 3 + 1, 16_000), at + 4))
                assert not output.flags.writeable
            del kept[2:], output, more
            for at, output in enumerate(kept):
                np.testing.assert_array_equal(output, given[at] + 1)
            del output
        local_socket.staging.take_ended()
        assert len(local_socket.staging.leases) == 1
        kept.clear()
        local_socket.staging.take_ended()
        assert not local_socket.staging.leases


def test_runs_that_wait_when_no_connection_is_left(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """They go over gRPC: nobody else would ever take them."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # One connection for runs, one for memory, and one more.
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}", "--session-streams", "2")
    with ExitStack() as closing:
        device, executor = compiled(closing, daemon.address, settings=Settings(heartbeat_timeout_s=1.0))
        welcome = session_of(device).welcome
        last = closing.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        last.connect(b"\0" + welcome.local_socket)
        last.send(local_socket_pb2.LocalRequest(attach={"session_id": welcome.session_id}).SerializeToString())
        assert local_socket_pb2.LocalReply.FromString(last.recv(1 << 16)).done
        stuck, waiting = executor.submit([ONE]), executor.submit([2 * ONE])
        until(lambda: device.state.running == 1, lambda: device.state)
        assert stuck.cancel()  # The device doesn't hear it, and the connection stays taken.
        until(lambda: device.state.running + device.state.queued == 2, lambda: device.state)
        while not waiting.done():
            try:
                os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:  # Nobody reads.
                continue
        (output,) = waiting.result(DEADLINE_S)
        assert output == [2]


@pytest.mark.parametrize("share_memory", [True, False])
def test_a_run_that_writes_a_resident_tensor_is_given_up(
    start_daemon: StartDaemon, tmp_path: Path, share_memory: bool
) -> None:
    """It has not ended before the device has stopped, which might still write there."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}")
    with ExitStack() as closing:
        settings = Settings(share_memory=share_memory, verdict_timeout_s=DEADLINE_S)
        device, executor = compiled(closing, daemon.address, settings=settings)
        state = closing.enter_context(ResidentTensor(device, TensorDesc(DataType.FLOAT32, (1,))))
        run = executor.submit([ONE], [state])
        with gate.open("wb", buffering=0):  # Opens when the device is at it.
            executor.close()
            assert not run.done()
        with pytest.raises(OperationFailed, match="the executor was closed"):
            run.result(DEADLINE_S)


@pytest.mark.parametrize("share_memory", [True, False])
@pytest.mark.parametrize("elements", [1, 1 << 20])
def test_the_times_of_a_run(start_daemon: StartDaemon, share_memory: bool, elements: int) -> None:
    """By name, on every way: four runs of a device that takes one at a time, for 0.2 s each."""
    daemon = start_daemon("--backend", "steady", "--option", "seconds=0.2", "--concurrent-runs", "1")
    with ExitStack() as closing:
        _, executor = compiled(closing, daemon.address, settings=Settings(share_memory=share_memory))
        runs = [executor.submit([np.ones(elements, np.float32)]) for _ in range(4)]
        times = [run.result(DEADLINE_S).times for run in runs]
        for each in times:
            assert each is not None
            assert each.computed_ns >= 0.2e9
            assert each.copied_in_ns > 0
            assert each.copied_out_ns > 0
        assert max(each.queued_ns for each in times if each is not None) > 0.1e9
