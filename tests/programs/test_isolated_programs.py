"""Models in processes of their own: a crash, a kill or a stuck operator ends a process, and no daemon."""

import math
import mmap
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from empty_programs import CRASHING, ENDLESS, GRU, EmptyCase, faulty, ones, require_only_its_run_fails
from program_models import parsed
from waiting import until

from nnrt_client import TimedOut, UnavailableDevice, Unsupported, Way, load
from nnrt_device_service.isolation import messages
from nnrt_device_service.isolation import model as model_module
from nnrt_device_service.isolation.backend import IsolatingBackend, isolated
from nnrt_device_service.isolation.channel import Channel, ProcessEnded
from nnrt_device_service.isolation.model import IsolatedModel
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import Backend, Cancellation, ModelConfig, load_backend
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidFile, InvalidParameter, NnrtError, OperationFailed
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import Array, TensorSpec

PROGRAM = (Way.PROGRAM,)
# The outputs' shapes follow from the elements of an input.
COUNTED = parsed("f (float[N, M] x) => (int64[2, K] y) { y = NonZero (x) }")
LONG = parsed(
    """
    f (int64 n, float[64, 64] x) => (float[64, 64] y) {
        go = Constant <value = bool {1}> ()
        y = Loop <body = body (int64 i, bool c, float[64, 64] v) => (bool d, float[64, 64] w) {
            d = Identity (c)
            w = MatMul (v, v)
        }> (n, go, x)
    }
    """
)

ROWS = TensorSpec(DataType.FLOAT32, (-1, 4))
ABSOLUTE = Graph((ROWS, ROWS), (Node(NodeType.ABS, (0,), (1,)),), (0,), (1,))


def children(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for task in tasks for child in task.read_text().split()}


def processes_of(daemon: DaemonProcess) -> set[int]:
    """Return the processes of the models of a daemon that has no other children."""
    (server,) = children(daemon.pid)
    return children(server)


@pytest.fixture(scope="module")
def isolating() -> Iterator[DaemonProcess]:
    daemon = DaemonProcess("--backend", "onnxruntime", "--isolate", "programs", "--stuck-s", "1")
    yield daemon
    daemon.kill()


@faulty
@pytest.mark.parametrize("case", [CRASHING[0], CRASHING[3]], ids=lambda case: case.name)
def test_a_crash_ends_its_own_run(isolating: DaemonProcess, case: EmptyCase) -> None:
    require_only_its_run_fails(isolating, case)
    until(lambda: not processes_of(isolating))


def test_a_killed_process_is_started_again(isolating: DaemonProcess) -> None:
    """Nobody notices a process that was killed when no run was in it."""
    x = ones(x=(3, 2, 4))
    with load(GRU.SerializeToString(), isolating.address, ways=PROGRAM) as session:
        wanted = session.run(x)["y"]
        (pid,) = processes_of(isolating)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{pid}").exists())
        np.testing.assert_array_equal(session.run(x)["y"], wanted)
    until(lambda: not processes_of(isolating))


@faulty
def test_a_stuck_run_ends_with_its_process(isolating: DaemonProcess) -> None:
    with load(ENDLESS.model.SerializeToString(), isolating.address, ways=PROGRAM) as session:
        with pytest.raises(TimedOut):
            session.run(ENDLESS.fatal, timeout_ms=200)
        (pid,) = processes_of(isolating)
        until(lambda: not Path(f"/proc/{pid}").exists())
        assert session.run(ENDLESS.harmless)["y"].shape == (1, 1, 3, 3)


def test_a_process_that_answers_nothing_is_ended(isolating: DaemonProcess) -> None:
    """Not the daemon, which asks for the sizes of a new kind of run before the run starts."""
    with load(GRU.SerializeToString(), isolating.address, ways=PROGRAM) as session:
        session.run(ones(x=(3, 2, 4)))
        (pid,) = processes_of(isolating)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(TimedOut):
            session.run(ones(x=(4, 2, 4)), timeout_ms=200)
        until(lambda: not Path(f"/proc/{pid}").exists())
        assert session.run(ones(x=(4, 2, 4)))["y"].shape == (4, 1, 2, 3)


def test_nothing_outlives_the_daemon(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "onnxruntime", "--isolate", "programs")
    with load(GRU.SerializeToString(), daemon.address, ways=PROGRAM) as session:
        session.run(ones(x=(3, 2, 4)))
        (pid,) = processes_of(daemon)
        (server,) = children(daemon.pid)
        daemon.kill()
    until(lambda: not Path(f"/proc/{pid}").exists() and not Path(f"/proc/{server}").exists())


# ---- without a daemon


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with closing(isolated(load_backend("onnxruntime"), Settings(backend="onnxruntime", isolate="programs"))) as backend:
        backend.start(1 << 28, accepts_programs=True)
        yield backend


@pytest.fixture
def loaded(backend: Backend) -> Iterator[Callable[..., IsolatedModel]]:
    models: list[IsolatedModel] = []

    def load_it(file: bytes) -> IsolatedModel:
        made = backend.load_program("onnx", [Part.of(file)], ModelConfig(), lambda fraction: None)
        assert isinstance(made, IsolatedModel)
        models.append(made)
        return made

    yield load_it
    for model in models:
        model.close()


Loaded = Callable[[bytes], IsolatedModel]


def test_outputs_find_room(loaded: Loaded) -> None:
    """Also those that are larger than anything before, in memory of the daemon or in that of the caller."""
    model = loaded(COUNTED.SerializeToString())
    for rows in (1, 2000, 3):
        x = np.ones((rows, 100), "f4")
        given = np.empty((2, rows * 100), "i8")
        (fresh,) = model.run([x], Cancellation())
        (written,) = model.run([x], Cancellation(), [given])
        np.testing.assert_array_equal(fresh, np.nonzero(x))
        assert written is given
        np.testing.assert_array_equal(given, fresh)


def test_large_runs_leave_no_memory_in_the_process(loaded: Loaded, backend: Backend) -> None:
    assert isinstance(backend, IsolatingBackend)
    model, x = loaded(COUNTED.SerializeToString()), np.zeros((1, 1 << 23), "f4")
    (before,) = backend.resident_bytes()
    for _ in range(4):
        model.run([x], Cancellation())
    until(lambda: backend.resident_bytes()[0] < before + 2 * x.nbytes)


def test_models_without_runs_give_memory_up(loaded: Loaded, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(backend, IsolatingBackend)
    monkeypatch.setattr(backend.budget, "limit_bytes", 1 << 25)
    x = np.zeros((1, 1 << 21), "f4")
    for model in [loaded(COUNTED.SerializeToString()) for _ in range(3)]:
        assert model.run([x], Cancellation())[0].shape == (2, 0)


def test_memory_of_runs_is_bounded(loaded: Loaded) -> None:
    model = loaded(COUNTED.SerializeToString())
    with pytest.raises(NnrtError, match=r"--run-bytes|smaller batches"):
        model.run([np.ones((1, 1 << 24), "f4")], Cancellation())
    assert model.run([np.ones((1, 2), "f4")], Cancellation())[0].shape == (2, 2)


def test_a_cancelled_run_stops(loaded: Loaded) -> None:
    model, cancellation = loaded(LONG.SerializeToString()), Cancellation()
    threading.Timer(0.05, cancellation.cancel).start()
    x = np.zeros((64, 64), "f4")
    with pytest.raises(OperationFailed, match="cancelled"):
        model.run([np.array(1 << 40), x], cancellation)
    assert not model.run([np.array(1), x], Cancellation())[0].any()


@faulty
def test_a_model_that_crashes_again_and_again_is_given_up(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model fails as a device does, so the daemon gives it to nobody else."""
    monkeypatch.setattr(model_module, "MOST_ENDS", 2)
    case = CRASHING[0]
    model = loaded(case.model.SerializeToString())
    for _ in range(2):
        with pytest.raises(Unsupported):
            model.run(list(case.fatal.values()), Cancellation())
    with pytest.raises(RuntimeError, match="have ended within"):
        model.run(list(case.harmless.values()), Cancellation())


def test_runs_beside_one_that_crashes_are_repeated(loaded: Loaded) -> None:
    """Nobody knows which of them was at fault, until they run one by one."""
    model, outputs = loaded(LONG.SerializeToString()), list[Array]()

    def run() -> None:
        outputs.extend(model.run([np.array(1 << 15), np.zeros((64, 64), "f4")], Cancellation()))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: model.process.busy == 2)
    model.process.end()
    for thread in threads:
        thread.join()
    assert [output.any() for output in outputs] == [False, False]


def test_a_run_whose_processes_end_is_given_up(loaded: Loaded) -> None:
    model, ends = loaded(LONG.SerializeToString()), list[NnrtError]()

    def run() -> None:
        with pytest.raises(UnavailableDevice, match="run it again") as raised:
            model.run([np.array(1 << 40), np.zeros((64, 64), "f4")], Cancellation())
        ends.append(raised.value)

    thread = threading.Thread(target=run)
    thread.start()
    first = model.process
    until(lambda: first.busy)
    first.end()
    until(lambda: model.process is not first and model.process.busy)
    model.process.end()
    thread.join()
    assert len(ends) == 1


def test_the_memory_of_processes_is_known(loaded: Loaded, backend: Backend) -> None:
    assert isinstance(backend, IsolatingBackend)
    until(lambda: not backend.resident_bytes())
    loaded(GRU.SerializeToString())
    (size_bytes,) = backend.resident_bytes()
    assert 1 << 20 < size_bytes < 1 << 30


def test_a_request_that_fails_ends_no_process(loaded: Loaded) -> None:
    model = loaded(GRU.SerializeToString())
    server = model.process.server
    pid = server.pid
    with pytest.raises(OSError, match="Bad file descriptor"):
        server.request([-1])
    assert server.pid == pid
    assert model.run([np.ones((3, 2, 4), "f4")], Cancellation())[0].shape == (3, 1, 2, 3)
    assert model.process.is_ready


def test_models_outlive_their_server() -> None:
    settings = Settings(isolate="all")
    with closing(isolated(load_backend("reference"), settings)) as backend:
        backend.start(1 << 28, accepts_programs=False)
        model = backend.prepare(ABSOLUTE, ModelConfig(), lambda fraction: None)
        assert isinstance(model, IsolatedModel)
        with closing(model):
            server, x = model.process.server, np.ones((3, 4), "f4")
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            until(lambda: server.pid is None)
            np.testing.assert_array_equal(model.run([x], Cancellation())[0], x)


def test_what_refuses_says_why(loaded: Loaded) -> None:
    with pytest.raises(InvalidFile):
        loaded(b"no model")


def test_every_backend_computes_as_before() -> None:
    """With --isolate all, also what is compiled, exported and restored."""
    x = -np.ones((3, 4), "f4")
    with closing(isolated(load_backend("reference"), Settings(isolate="all"))) as backend:
        backend.start(1 << 28, accepts_programs=False)
        made = backend.prepare(ABSOLUTE, ModelConfig(), lambda fraction: None)
        again = backend.restore(made.export(), ModelConfig(is_own=True))
        for model in (made, again):
            with closing(model):
                assert [each.shape for each in model.sizes([x]).outputs] == [(3, 4)]
                np.testing.assert_array_equal(model.run([x], Cancellation())[0], -x)
                outputs, times = model.profile([x], Cancellation())
                np.testing.assert_array_equal(outputs[0], -x)
                assert [time.operator for time in times] == ["ABS"]
                assert model.input_ranges()[0].max_dims[1] == 4


# ---- a process that foreign code has taken over


def replied(*reply: float, memory: bytes = b"") -> None:
    """Have a process answer a run so, with its answer in this memory behind the question."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    budget = MemoryBudget(1 << 20)
    with ours, theirs:
        channel = Channel(1, ours, budget, lambda: None)
        with closing(channel):
            _, (requests, file), _, _ = socket.recv_fds(theirs, 64, 2)
            with socket.socket(fileno=requests) as answering, mmap.mmap(file, 0) as mapped:
                os.close(file)
                mapped[128 : 128 + len(memory)] = memory
                answering.send(messages.MESSAGE.pack(*reply) if len(reply) == 4 else b"x")
                answering.shutdown(socket.SHUT_WR)
                channel.run(messages.RUN, [np.zeros(16, "f4")], Cancellation(), (), 0, 1)
    assert not budget.used_bytes


def layout(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


@pytest.mark.parametrize(
    ("reply", "memory"),
    [
        ((), b""),
        ((9, 0.0, 0, 0), b""),
        ((messages.PROGRESS, math.nan, 0, 0), b""),
        ((messages.DONE, 0.0, 1 << 63, 1 << 63), b""),
        ((messages.DONE, 0.0, 1 << 40, 0), b""),
        ((messages.DONE, 0.0, 24, 0), layout(43, 1, 1 << 40)),
        ((messages.DONE, 0.0, 24, 0), layout(43, 1, 1 << 30)),
        ((messages.DONE, 0.0, 24, 0), layout(43, 1, -5)),
        ((messages.DONE, 0.0, 24, 0), layout(43, 2, 1)),
        ((messages.DONE, 0.0, 24, 0), layout(77, 1, 1)),
        ((messages.DONE, 0.0, 23, 0), layout(43, 1, 1)),
        ((messages.DONE, 0.0, 24, 2), layout(43, 1, 1) + b"[["),
        ((messages.FAILED, 0.0, 4, 0), b""),
        ((messages.ROOM, 0.0, 1 << 63, 0), b""),
    ],
)
def test_nonsense_ends_the_process_alone(reply: tuple[float, ...], memory: bytes) -> None:
    with pytest.raises(ProcessEnded):
        replied(*reply, memory=memory)


# ---- who is isolated


@pytest.mark.parametrize(
    ("settings", "is_isolated"),
    [
        ({}, False),
        ({"listen": ("unix:/tmp/a", "127.0.0.1:0")}, False),
        ({"listen": ("0.0.0.0:0",)}, True),
        ({"tls_client_ca": "file"}, True),
        ({"access": "file", "isolate": "none"}, False),
    ],
)
def test_isolation_is_for_several_identities(settings: dict[str, object], is_isolated: bool) -> None:
    with closing(load_backend("onnxruntime")) as plain:
        backend = isolated(plain, Settings(**settings))  # type: ignore[arg-type]
        assert isinstance(backend, IsolatingBackend) == is_isolated


def test_a_backend_may_want_it_or_be_unable() -> None:
    plain = load_backend("onnxruntime")
    with closing(plain):
        assert isolated(plain, Settings()) is plain
        plain.isolates = "programs"
        assert isolated(plain, Settings()).isolates == "programs"
        assert isolated(plain, Settings(isolate="none")) is plain
        plain.isolates = None
        assert isolated(plain, Settings(access="file")) is plain
        with pytest.raises(InvalidParameter, match="--isolate"):
            isolated(plain, Settings(isolate="programs"))
