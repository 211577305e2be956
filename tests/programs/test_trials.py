"""Files on which ONNX Runtime crashes: they end a process of their own, and no daemon.

Another ONNX Runtime may be without the fault that CRASHING is an instance of, and takes it then.
"""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from device_runs import outputs_of
from empty_programs import faulty
from nnrt_backend_onnxruntime.backend import OnnxRuntimeBackend
from nnrt_backend_onnxruntime.deadlines import Deadlines
from nnrt_backend_onnxruntime.programs import trials as trials_module
from nnrt_backend_onnxruntime.programs.loading import load_program
from nnrt_backend_onnxruntime.programs.trials import Crashed, Refused, Trial, Trials
from nnrt_backend_onnxruntime.providers import ProviderDevice
from onnx import ModelProto, TensorProto, numpy_helper
from program_models import CASES, parsed, weights
from waiting import until

from nnrt_client import Origin, Way, load
from nnrt_device_service.device import Device
from nnrt_device_service.models.compilations import Progress
from nnrt_device_service.models.requests import Build, Program
from nnrt_device_service.sessions.session import Prepared
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import ModelConfig, PreparedModel
from nnrt_hdi.errors import OperationFailed, Unsupported
from nnrt_hdi.part import Part

pytestmark = pytest.mark.slow

CPU = ProviderDevice("cpu", 0, threads=1)
NO_PROGRESS = Progress(lambda stage, _: None)
VECTOR = numpy_helper.from_array(np.ones((16, 1), np.float16), "v")
# MatMul's optimization takes what is transposed for FLOAT32.
CRASHING: ModelProto = parsed(
    "f (float16[T, B, 16] x) => (float16[B, T, 1] y) { t = Transpose <perm = [1, 0, 2]> (x) y = MatMul (t, v) }", VECTOR
)
LARGE: ModelProto = parsed("f (float[1] x) => (float[N] y) { y = Add (x, sparse) }")
LARGE.graph.sparse_initializer.add(
    values=numpy_helper.from_array(np.ones(1, "f4"), "sparse"),
    indices=numpy_helper.from_array(np.zeros(1, "i8"), "indices"),
    dims=[1 << 30],
)
SLOW: ModelProto = parsed(
    "f (float[1] x) => (float[M] y) { c0 = ConstantOfShape (square) "
    + " ".join(f"c{at + 1} = MatMul (c{at}, c{at})" for at in range(1000))
    + " flat = ReduceSum <keepdims = 0> (c1000) y = Add (x, flat) }",
    numpy_helper.from_array(np.array([3000, 3000]), "square"),
)


@pytest.fixture(scope="module")
def trials() -> Iterator[Trials]:
    trials = Trials()
    trials.start()
    yield trials
    trials.close()


def children(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for task in tasks for child in task.read_text().split()}


def begun(trials: Trials, model: ModelProto) -> Trial:
    return trials.begin(model.SerializeToString(), {}, CPU, ModelConfig(), {}, is_optimized=True)


def tried(trials: Trials, model: ModelProto, waiting: Callable[[], None] = lambda: None) -> None:
    with begun(trials, model) as trial:
        trial.require_success(waiting)


@faulty
def test_the_error_says_that_it_crashes(trials: Trials) -> None:
    for _ in range(2):
        with pytest.raises(Crashed, match=rf"ONNX Runtime {onnxruntime.__version__} crashes on it \(SIGSEGV\)"):
            tried(trials, CRASHING)
        tried(trials, CASES[0].model)


@faulty
def test_a_daemon_outlives_it(start_daemon: StartDaemon, tmp_path: Path) -> None:
    arguments = "--backend", "onnxruntime", "--store-dir", str(tmp_path)
    daemon = start_daemon(*arguments)
    x = np.ones((2, 3, 16), np.float16)
    for origin in Origin.COMPILED, Origin.STORED:
        with load(CRASHING.SerializeToString(), daemon.address, ways=[Way.PROGRAM]) as session:
            assert session.report.origin is origin
            assert session.run({"x": x})["y"].tolist() == [[[16], [16]]] * 3
        case = CASES[0]
        with load(case.file, daemon.address, ways=[Way.PROGRAM]) as session:
            session.run(case.feeds[0])
    assert daemon.log().count("without optimizations, because with them ONNX Runtime") == 1


class NeverPlain(Trials):
    """Tries models with optimizations, whatever is asked for: a crash without them is not known of any."""

    def begin(self, *arguments: Any, is_optimized: bool, **options: Any) -> Trial:
        return super().begin(*arguments, is_optimized=True, **options)


@faulty
def test_what_crashes_all_the_same_is_refused() -> None:
    def loaded(model: ModelProto) -> PreparedModel:
        parts = [Part.of(model.SerializeToString())]
        return load_program(parts, ModelConfig(), CPU, deadlines, lambda fraction: None, trials)

    with closing(NeverPlain()) as trials, closing(Deadlines()) as deadlines:
        with pytest.raises(Unsupported, match=r"crashes on it \(SIGSEGV\); export it in another way"):
            loaded(CRASHING)
        loaded(CASES[0].model).close()


def test_weights_get_there(trials: Trials) -> None:
    model = parsed("f (float[N, 64] x) => (float[N, 64] y) { m = MatMul (x, w) y = Add (m, b) }")
    weights = {"w": np.ones((64, 64), np.float32), "b": np.ones(64, np.float32)}
    for name, array in weights.items():
        tensor = TensorProto(
            name=name, data_type=TensorProto.FLOAT, dims=array.shape, data_location=TensorProto.EXTERNAL
        )
        tensor.external_data.add(key="location", value="weights.bin")
        model.graph.initializer.append(tensor)
    with trials.begin(model.SerializeToString(), weights, CPU, ModelConfig(), {}, is_optimized=True) as trial:
        trial.require_success(lambda: None)


def test_memory_is_bounded(trials: Trials) -> None:
    with pytest.raises(Refused, match="ONNX Runtime does not take the model"):
        tried(trials, LARGE)


def test_time_is_bounded(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials_module, "MOST_S", 0)
    with pytest.raises(Unsupported, match="has not opened it after 0 s"):
        tried(trials, SLOW)
    require_idle(trials)


def test_who_waits_may_give_up(trials: Trials) -> None:
    def give_up() -> None:
        raise OperationFailed("the client gave up")

    with pytest.raises(OperationFailed, match="gave up"):
        tried(trials, SLOW, give_up)
    require_idle(trials)


def test_others_do_not_wait(trials: Trials) -> None:
    with begun(trials, SLOW), begun(trials, CASES[0].model) as quick, begun(trials, SLOW):
        quick.require_success(lambda: None)
    require_idle(trials)


def test_the_process_is_started_again() -> None:
    with closing(Trials()) as trials:
        tried(trials, CASES[0].model)
        assert trials.pid is not None
        os.kill(trials.pid, signal.SIGKILL)
        until(lambda: trials.pid is None)
        tried(trials, CASES[0].model)


def test_it_ends_with_the_daemon(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "onnxruntime")
    (pid,) = children(daemon.pid)
    daemon.kill()
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_daemon_that_takes_no_programs_has_none(start_daemon: StartDaemon) -> None:
    assert not children(start_daemon("--backend", "onnxruntime", "--accept-programs", "never").pid)


def require_idle(trials: Trials) -> None:
    assert trials.pid is not None
    until(lambda: not children(trials.pid or 0))


class CountingTrials(Trials):
    """Notes what sessions hold when a trial begins."""

    def __init__(self) -> None:
        super().__init__()
        self.device: Device | None = None
        self.held_bytes: list[int] = []

    def begin(self, *arguments: Any, **options: Any) -> Trial:
        assert self.device is not None
        self.held_bytes.append(self.device.sessions.budget.used_bytes)
        return super().begin(*arguments, **options)


def test_copies_of_a_program_count() -> None:
    """When it is opened, when it is run, and when it is restored; and not longer."""
    model = parsed(
        "f (float[N, 512] x) => (int64[2, K] y) { m = MatMul (x, w) y = NonZero (m) }", weights("w", 512, 512)
    )
    file, x = model.SerializeToString(), np.ones((1, 512), np.float32)
    trials = CountingTrials()
    backend = OnnxRuntimeBackend(CPU)
    backend._trials = trials
    device = trials.device = Device(backend, Settings(accept_programs="always"))
    session = device.sessions.open("a test", lambda: None)
    device.open_account(session, "a test")
    try:
        made = device.models.load_program(Program("onnx", [file]), Build(session, ModelConfig(), NO_PROGRESS))
        assert isinstance(made, Prepared)
        loaded = session.model(made.model_id)
        outputs_of(device, session, loaded, [x])
        outputs_of(device, session, loaded, [x])
        assert session.budget.used_bytes < 1.5 * len(file)
        parts = [bytes(part.data) for part in loaded.shared.prepared.export()]
        device.models.restore(parts, Build(session, ModelConfig(accepts_programs=True), NO_PROGRESS))
        assert session.budget.used_bytes < 2.5 * len(file)
    finally:
        device.sessions.close(session)
        device.close(30.0)
    opened, ran, restored = trials.held_bytes
    assert min(opened, ran) >= 2 * len(file)
    assert restored >= 3 * len(file)


def test_the_log_says_which_isolation_there_is(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "onnxruntime")
    said = until(
        lambda: re.search(" (INFO|WARNING) .*: ONNX files are tried in a process .*", daemon.log()), daemon.log
    )
    assert said is not None
    (pid,) = children(daemon.pid)
    is_apart = Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    assert (said[1], "without network" in said[0]) == (("INFO", True) if is_apart else ("WARNING", False))


def test_a_process_that_can_not_leave_the_network_says_so() -> None:
    """As where a container lets nobody make a namespace."""
    no_more = "echo 0 > /proc/sys/user/max_user_namespaces && exec"
    through = ("unshare", "--user", "--map-root-user", "sh", "-c", f'{no_more} "$@"', "sh")
    if subprocess.run([*through, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this host lets nobody make a namespace")
    daemon = DaemonProcess("--backend", "onnxruntime", through=through)
    try:
        until(
            lambda: "WARNING" in daemon.log() and "can't leave the network: No space left" in daemon.log(), daemon.log
        )
    finally:
        daemon.kill()
