"""InferenceSession compared with ONNX Runtime's own, call by call."""

import array
import gc
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from observer import Observer
from onnx import TensorProto, helper, numpy_helper, parser
from waiting import until

import nnrt_client.onnxruntime as ours
import nnrt_client.onnxruntime.capi.onnxruntime_pybind11_state as states
from drop_in.both_runtimes import Call, outcome, require_equal, require_same
from drop_in.conftest import sums
from nnrt_client import NnrtError, UnavailableDevice
from nnrt_client.onnxruntime.capi.onnxruntime_pybind11_state import (
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
)
from nnrt_client.onnxruntime.placed_model import placed_model

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = np.full((2, 3), 10, np.float32)
FEED = {"x": X, "y": Y}


def metadata(session: Any) -> list[Any]:
    meta = session.get_modelmeta()
    names = "producer_name graph_name domain description graph_description version custom_metadata_map"
    return [getattr(meta, name) for name in names.split()]


def arguments(session: Any) -> list[Any]:
    return [(one.name, one.shape, one.type) for one in (*session.get_inputs(), *session.get_outputs())]


def terminated(module: Any) -> Any:
    options = module.RunOptions()
    options.terminate = True
    return options


def options_of_a_run(module: Any) -> Any:
    options = module.RunOptions()
    options.logid, options.log_severity_level, options.only_execute_path_to_fetches = "run", 3, True
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def with_options(module: Any, source: Any) -> Any:
    """Return sessions with all supported options, and what the options report about themselves."""
    options = module.SessionOptions()
    options.graph_optimization_level = module.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.execution_mode = module.ExecutionMode.ORT_PARALLEL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_mem_pattern = options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_free_dimension_override_by_name("batch", 2)
    session = module.InferenceSession(source, options, ["CPUExecutionProvider" if module is onnxruntime else NNRT])
    kept = session.get_session_options()
    return [
        kept.graph_optimization_level.name,
        kept.intra_op_num_threads,
        kept.get_session_config_entry("session.intra_op.allow_spinning"),
        arguments(session),
        session.run(None, FEED),
        type(outcome(lambda _, s: s.run(None, {"x": X[:1], "y": Y}), module, session)).__name__,
    ]


NNRT = "NnrtExecutionProvider"

CALLS: dict[str, Call] = {
    "arguments": lambda _, s: arguments(s),
    "metadata": lambda _, s: metadata(s),
    "overridable initializers": lambda _, s: s.get_overridable_initializers(),
    "all outputs": lambda _, s: s.run(None, FEED),
    "no names": lambda _, s: s.run([], FEED),
    "one output": lambda _, s: s.run(["p"], FEED),
    "other order": lambda _, s: s.run(["p", "s"], FEED),
    "twice the same": lambda _, s: s.run(["p", "p"], FEED),
    "by keyword": lambda _, s: s.run(output_names=None, input_feed=FEED, run_options=None),
    "a list": lambda _, s: s.run(None, {"x": X.tolist(), "y": Y}),
    "a list of integers": lambda _, s: s.run(None, {"x": [[1, 2, 3]], "y": Y}),
    "not contiguous": lambda _, s: s.run(None, {"x": np.asfortranarray(X), "y": Y[:, ::-1]}),
    "no rows": lambda _, s: s.run(None, {"x": X[:0], "y": Y[:0]}),
    "a value": lambda module, s: s.run(None, {"x": module.OrtValue.ortvalue_from_numpy(X), "y": Y}),
    "options of a run": lambda module, s: s.run(["s"], FEED, options_of_a_run(module)),
    "terminated before": lambda module, s: s.run(None, FEED, terminated(module)),
    "unknown output": lambda _, s: s.run(["q"], FEED),
    "missing input": lambda _, s: s.run(None, {"x": X}),
    "missing and unneeded": lambda _, s: s.run(["p"], {"x": X}),
    "unknown input": lambda _, s: s.run(None, {**FEED, "z": X}),
    "other input": lambda _, s: s.run(None, {"z": X}),
    "double": lambda _, s: s.run(None, {"x": X.astype(np.float64), "y": Y}),
    "integer": lambda _, s: s.run(None, {"x": X.astype(np.int64), "y": Y}),
    "rank": lambda _, s: s.run(None, {"x": X[0], "y": Y}),
    "dimension": lambda _, s: s.run(None, {"x": X[:, :2], "y": Y}),
    "rows that do not fit": lambda _, s: s.run(None, {"x": X, "y": np.ones((5, 3), np.float32)}),
    "a number": lambda _, s: s.run(None, {"x": 1.0, "y": Y}),
    "a name as names": lambda _, s: s.run("p", FEED),
    "values": lambda module, s: [
        one.numpy()
        for one in s.run_with_ort_values(
            ["p", "s"], {name: module.OrtValue.ortvalue_from_numpy(given) for name, given in FEED.items()}
        )
    ],
    "values, one missing": lambda module, s: s.run_with_ort_values(None, {"x": module.OrtValue.ortvalue_from_numpy(X)}),
    "unknown entry": lambda module, _: module.SessionOptions().get_session_config_entry("no such"),
    "an option's type": lambda module, _: setattr(module.SessionOptions(), "logid", 3),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_the_same_call(call: Call, theirs: Any, mine: ours.InferenceSession) -> None:
    require_same(call, theirs, mine)


def test_messages_say_what_theirs_say(theirs: Any, mine: ours.InferenceSession) -> None:
    """Applications search messages: nnrt's begin with ONNX Runtime's text, and add advice."""
    for name in ("unknown output", "missing input", "unknown input", "double", "rank", "dimension"):
        expected = str(outcome(CALLS[name], onnxruntime, theirs))
        assert str(outcome(CALLS[name], ours, mine)).startswith(expected), name


def test_options(theirs: Any) -> None:
    source = sums().SerializeToString()
    require_equal(with_options(onnxruntime, source), with_options(ours, source))


def test_dimensions_by_denotation() -> None:
    model = sums()
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    source = model.SerializeToString()
    shapes = []
    for module in (onnxruntime, ours):
        options = module.SessionOptions()
        options.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
        provider = "CPUExecutionProvider" if module is onnxruntime else NNRT
        shapes.append(arguments(module.InferenceSession(source, options, [provider])))
    assert shapes[0] == shapes[1]


DTYPES = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_types(dtype: str) -> None:
    """Each type has ONNX Runtime's name for it."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    infos = [helper.make_tensor_value_info(name, element, dims) for name, dims in (("x", [None, 2]), ("n", []))]
    outs = [helper.make_tensor_value_info(name, element, dims) for name, dims in (("y", [None, 2]), ("m", []))]
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["n"], ["m"])]
    graph = helper.make_graph(nodes, "types", infos, outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    feed = {"x": np.arange(6).reshape(3, 2).astype(dtype), "n": np.array(1, dtype)}
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    with ours.InferenceSession(model) as mine:
        assert arguments(mine) == arguments(theirs)
        require_equal(theirs.run(None, feed), mine.run(None, feed))


# ---- files

EXPORTS = [
    Path(__file__).parents[1] / f"onnx_import/torch_exports/{name}-{exporter}.onnx"
    for name in ("detector", "lstm", "quantized_cnn", "transformer")
    for exporter in ("dynamo", "torchscript")
]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.stem)
def test_networks_of_torchs_exporters(path: Path) -> None:
    """Names, dimension names and outputs are the same; dynamic dimensions are 2."""
    options = onnxruntime.SessionOptions()
    # ONNX Runtime's fused 8-bit operators saturate on processors without VNNI.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(4)
    feed = {}
    for one in theirs.get_inputs():
        dtype = {"tensor(float)": np.float32, "tensor(int64)": np.int64}[one.type]
        shape = [dim if isinstance(dim, int) else 32 if dim in ("height", "width") else 2 for dim in one.shape]
        feed[one.name] = rng.integers(0, 2, shape).astype(dtype)
    with ours.InferenceSession(path) as mine:
        assert metadata(mine) == metadata(theirs)
        assert [one.name for one in mine.get_outputs()] == [one.name for one in theirs.get_outputs()]
        assert [(x.name, x.shape, x.type) for x in mine.get_inputs()] == [
            (x.name, x.shape, x.type) for x in theirs.get_inputs()
        ]
        for expected, given in zip(theirs.run(None, feed), mine.run(None, feed), strict=True):
            np.testing.assert_allclose(given, expected, rtol=1e-3, atol=1e-4)


def test_sources(model_file: Path) -> None:
    expected = [X + Y, X * np.array([1, 2, 3], np.float32)]
    for source in (model_file, str(model_file), model_file.read_bytes(), bytearray(model_file.read_bytes())):
        with ours.InferenceSession(source) as session:
            require_equal(session.run(None, FEED), [one.astype(np.float32) for one in expected])


def test_external_data(tmp_path: Path) -> None:
    model = sums()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    theirs = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    with ours.InferenceSession(tmp_path / "m.onnx") as mine:
        require_equal(theirs.run(None, FEED), mine.run(None, FEED))
    with pytest.raises(NoSuchFile, match="give the model by its path"):
        ours.InferenceSession((tmp_path / "m.onnx").read_bytes())


def test_an_input_with_a_value_is_no_input() -> None:
    """Old files list weights among the inputs."""
    model = sums()
    model.ir_version = 3
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3]))
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with ours.InferenceSession(model.SerializeToString()) as mine:
        assert arguments(mine) == arguments(theirs)


def unmapped() -> bytes:
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17, "acme": 1]> g (float[N] x) => (float[N] y) { y = acme.Magic(x) }'
    )
    return bytes(model.SerializeToString())


def test_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "garbage.onnx").write_bytes(b"garbage")
    (tmp_path / "empty.onnx").touch()
    os.mkfifo(tmp_path / "pipe.onnx")
    bad: list[tuple[Any, type[Exception]]] = [
        (tmp_path / "missing.onnx", NoSuchFile),
        (tmp_path / "garbage.onnx", InvalidProtobuf),
        (tmp_path / "empty.onnx", InvalidProtobuf),
        (tmp_path / "pipe.onnx", InvalidProtobuf),
        (b"garbage", InvalidProtobuf),
        (sums().SerializeToString()[:-3], InvalidProtobuf),
        (unmapped(), InvalidGraph),
        (3, TypeError),
        (None, TypeError),
    ]
    for source, kind in bad:
        with pytest.raises(kind) as raised:
            ours.InferenceSession(source)
        assert isinstance(raised.value, NnrtError)


# ---- providers


def unavailable(name: str) -> AbstractContextManager[Any]:
    """Text of ONNX Runtime's warning."""
    return pytest.warns(UserWarning, match=f"Specified provider '{name}' is not in available provider names")


@pytest.mark.parametrize("module", [onnxruntime, ours], ids=["theirs", "ours"])
def test_a_provider_that_nobody_knows(module: Any) -> None:
    """Both runtimes warn, and go on without it."""
    with unavailable("NoProvider"):
        session = module.InferenceSession(sums().SerializeToString(), providers=["NoProvider", "CPUExecutionProvider"])
    assert "NoProvider" not in session.get_providers()


def test_providers(onnxruntime_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address can be given in two ways; a CPU provider next to it is never used."""
    source, address = sums().SerializeToString(), onnxruntime_daemon.address
    monkeypatch.delenv("NNRT_DEVICES")
    for arguments in (
        {"providers": [(NNRT, {"device": address}), "CPUExecutionProvider"]},
        {"providers": [NNRT, "CPUExecutionProvider"], "provider_options": [{"device": address}, {}]},
        {
            "providers": [NNRT, "CUDAExecutionProvider", "CPUExecutionProvider"],
            "provider_options": [{"device": address, "cache": "0", "priority": "high"}, {"device_id": 0}, {}],
        },
    ):
        names_another = "CUDAExecutionProvider" in str(arguments)
        with unavailable("CUDAExecutionProvider") if names_another else nullcontext():
            session = ours.InferenceSession(source, **arguments)
        with session:
            assert session.get_providers() == [NNRT, "CPUExecutionProvider"]
            assert session.get_provider_options()[NNRT]["device"] == address
            require_equal(session.run(["s"], FEED), [X + Y])
    with pytest.raises(states.Fail, match="no addresses are known; give a device's address, or set NNRT_DEVICES"):
        ours.InferenceSession(source)
    with pytest.raises(states.Fail, match="'nonsense' is no HOST:PORT, and no addresses are known"):
        ours.InferenceSession(source, providers=[(NNRT, {"device": "nonsense"})])


@pytest.mark.parametrize(
    ("providers", "options", "says"),
    [
        (["CUDAExecutionProvider"], None, f"falls back on no other: add '{NNRT}'"),
        ([], None, f"add '{NNRT}'"),
        ([NNRT], [{}, {}], "the same length"),
        ([(NNRT, {})], [{}], "Only string values"),
        ([3], None, "strings or"),
        (NNRT, None, "give a list"),
    ],
)
def test_providers_that_make_no_sense(providers: Any, options: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ours.InferenceSession(sums().SerializeToString(), None, providers, options)


@pytest.fixture
def default_options() -> Iterator[None]:
    """Reset the process-wide provider options after the test."""
    yield
    ours.set_default_provider_options()


@pytest.mark.usefixtures("default_options")
def test_applications_that_name_the_cpu_alone(
    onnxruntime_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They run on the device of NNRT_DEVICES or of the setting, with one warning; otherwise they fail."""
    source, address = sums().SerializeToString(), onnxruntime_daemon.address
    providers: Any = ["CUDAExecutionProvider", ("CPUExecutionProvider", {"arena_extend_strategy": "0"})]
    for _ in range(2):
        with unavailable("CUDAExecutionProvider"):
            session = ours.InferenceSession(source, providers=providers)
        with session:
            assert session.get_providers() == [NNRT, "CPUExecutionProvider"]
            assert session.get_provider_options()[NNRT]["device"] == address
            require_equal(session.run(["s"], FEED), [X + Y])
    (told,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert told.endswith(f"['CUDAExecutionProvider', 'CPUExecutionProvider'] run on the device {address}")

    monkeypatch.delenv("NNRT_DEVICES")
    with pytest.raises(
        ValueError,
        match=r"the providers are \['CPUExecutionProvider'\], and no device is known; set NNRT_DEVICES=HOST:PORT, or"
        " call set_default_provider_options",
    ):
        ours.InferenceSession(source, providers=["CPUExecutionProvider"])
    with pytest.raises(InvalidArgument, match="no options"):
        ours.set_default_provider_options({"address": address})
    ours.set_default_provider_options({"device": address, "cache": "0"})
    for providers in (["CPUExecutionProvider"], None, [NNRT], [(NNRT, {"cache": "1"})]):
        with ours.InferenceSession(source, providers=providers) as session:
            assert session.get_provider_options()[NNRT]["device"] == address
            assert session.get_provider_options()[NNRT]["cache"] == (
                "1" if providers == [(NNRT, {"cache": "1"})] else "0"
            )


def test_options_that_there_are_not() -> None:
    with pytest.raises(
        InvalidArgument, match=r"no options \['device_id'\]; there are \['cache', 'constants', 'device'"
    ):
        ours.InferenceSession(sums().SerializeToString(), providers=[(NNRT, {"device_id": 0})])
    with pytest.raises(InvalidArgument, match="priority is 'urgent'; give one of"):
        ours.InferenceSession(sums().SerializeToString(), providers=[(NNRT, {"priority": "urgent"})])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_provider_that_there_is_not() -> None:
    source = sums().SerializeToString()
    with ours.InferenceSession(source) as session:
        require_same(
            lambda _, s: s.set_providers(["NoProvider"]),
            onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"]),
            session,
        )
        require_equal(session.run(["s"], FEED), [X + Y])  # It keeps its current provider.


def test_ways_and_constants() -> None:
    """A model can be loaded as a program; a constant input may still be given."""
    for options in ({"ways": "program"}, {"constants": {"y": Y}}, {"ways": ["operators"], "constants": {"y": Y}}):
        with ours.InferenceSession(sums().SerializeToString(), providers=[(NNRT, options)]) as session:
            assert [one.name for one in session.get_inputs()] == ["x", "y"]
            require_equal(session.run(["s"], FEED), [X + Y])
            if "constants" in options:
                require_equal(session.run(["s"], {"x": X}), [X + Y])
                with pytest.raises(InvalidArgument, match="frozen to another value"):
                    session.run(["s"], {"x": X, "y": X})
    with pytest.raises(InvalidArgument, match="give them by the names of inputs"):
        ours.InferenceSession(sums().SerializeToString(), providers=[(NNRT, {"constants": "y"})])


CUT = """
<ir_version: 9, opset_import: ["": 17]>
cut (float[n, 3] x) => (float[n, 3] first, float[n, 3] last)
<float[3, 3] w = {0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3}>
{
    first = MatMul(x, w)
    t = Tanh(first)
    odd = Acos(t)
    last = MatMul(odd, w)
}
"""


def test_fallback(shared_daemon: DaemonProcess) -> None:
    """The client computes what the device can't, and outputs of any size stay on the device."""
    source = parser.parse_model(CUT).SerializeToString()
    theirs = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    given: dict[str, Any] = {"device": shared_daemon.address, "ways": "operators", "cache": "0"}
    with pytest.raises(InvalidGraph, match="Acos"):
        ours.InferenceSession(source, providers=[(NNRT, given)])
    with ours.InferenceSession(source, providers=[(NNRT, {**given, "fallback": "cpu"})]) as mine:
        require_equal(theirs.run(None, {"x": X}), mine.run(None, {"x": X}))
        for rows in (2, 3, 40):
            x = np.linspace(-1, 1, rows * 3, dtype=np.float32).reshape(rows, 3)
            binding = mine.io_binding()
            binding.bind_cpu_input("x", x)
            for name in ("first", "last"):
                binding.bind_output(name, "nnrt")
            mine.run_with_iobinding(binding)
            assert {value.device_name() for value in binding.get_outputs()} == {"nnrt"}
            require_equal(theirs.run(None, {"x": x}), [one.copy() for one in binding.copy_outputs_to_cpu()])
            del binding


def test_another_device(shared_daemon: DaemonProcess) -> None:
    with ours.InferenceSession(sums().SerializeToString()) as session:
        session.set_providers([(NNRT, {"device": shared_daemon.address})])
        assert session.get_provider_options() == {NNRT: {"device": shared_daemon.address}}
        require_equal(session.run(["s"], FEED), [X + Y])


def test_refused_by_name() -> None:
    options = ours.SessionOptions()
    for name, value in (
        ("enable_profiling", True),
        ("optimized_model_filepath", "out.onnx"),
        ("use_deterministic_compute", True),
    ):
        setattr(options, name, getattr(options, name))
        with pytest.raises(states.NotImplemented, match=name):
            setattr(options, name, value)
    with pytest.raises(states.NotImplemented, match="would have to run in the daemon"):
        options.register_custom_ops_library("ops.so")
    with pytest.raises(AttributeError):
        options.no_such_option = 1  # type: ignore[attr-defined]


# ---- runs


def test_arrays_of_others(mine: ours.InferenceSession) -> None:
    """Objects with DLPack or the buffer protocol."""

    class Foreign:
        def __dlpack__(self, **options: Any) -> Any:
            return X.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return X.__dlpack_device__()

    rows = memoryview(array.array("f", Y.ravel().tolist())).cast("B").cast("f", (2, 3))
    require_equal(mine.run(["s"], {"x": Foreign(), "y": rows}), [X + Y])


def told(session: Any, feed: Any) -> Any:
    """What the callback of a run is called with."""
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    session.run_async(["p", "s"], feed, lambda *call: calls.put(call), "data")
    outputs, data, error = calls.get(timeout=30)
    return outputs, data, bool(error)


def test_run_async(theirs: Any, onnxruntime_daemon: DaemonProcess) -> None:
    own = [(NNRT, {"device": onnxruntime_daemon.address.replace("127.0.0.1", "localhost")})]
    with ours.InferenceSession(sums().SerializeToString(), providers=own) as mine:
        for feed in (FEED, {"x": X, "y": np.ones((5, 3), np.float32)}, {"x": X[0], "y": Y}):
            require_equal(told(theirs, feed), told(mine, feed))
        with pytest.raises(ValueError, match="missing from input feed"):
            mine.run_async(None, {"x": X}, lambda *_: None, None)


def test_a_session_stays_until_its_runs_have_ended(onnxruntime_daemon: DaemonProcess) -> None:
    """As in ONNX Runtime, even if only its runs refer to it."""
    providers = [(NNRT, {"device": onnxruntime_daemon.address.replace("127.0.0.1", "localhost")})]
    session = ours.InferenceSession(sums().SerializeToString(), providers=providers)
    connection, calls = placed_model(session).connection, queue.SimpleQueue[Any]()
    for _ in range(400):
        session.run_async(["s"], FEED, lambda *call: calls.put(call), None)
    del session
    for _ in range(400):
        outputs, _, error = calls.get(timeout=30)
        assert not error
        require_equal(outputs, [X + Y])
    until(lambda: not connection.is_open)


def test_terminate_ends_runs_under_way(start_daemon: StartDaemon) -> None:
    """On a device whose runs end only by cancellation."""
    daemon = start_daemon("--backend", "slow")
    options = ours.RunOptions()
    providers = [(NNRT, {"device": daemon.address})]
    with (
        ours.InferenceSession(sums().SerializeToString(), providers=providers) as session,
        Observer(daemon.address) as observer,
    ):
        ends: list[Any] = []
        thread = threading.Thread(
            target=lambda: ends.append(outcome(lambda _, s: s.run(None, FEED, options), ours, session))
        )
        thread.start()
        observer.wait_for(lambda state: state.running == 1)
        options.terminate = True
        thread.join(30)
        assert isinstance(ends[0], Fail) and "terminate flag" in str(ends[0])
        options.terminate = False
        options.add_run_config_entry("nnrt.timeout_ms", "50")
        with pytest.raises(Fail, match=r"50 ms|longer than it was given"):
            session.run(None, FEED, options)


def test_a_death(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "onnxruntime")
    with ours.InferenceSession(sums().SerializeToString(), providers=[(NNRT, {"device": daemon.address})]) as session:
        daemon.kill()
        with pytest.raises(EPFail) as raised:
            session.run(None, FEED)
        assert isinstance(raised.value, UnavailableDevice)


def test_it_is_loaded_again(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """The model is loaded on the restarted daemon; the values on the device are lost."""
    listen = f"unix:{tmp_path / 'd'}"
    daemon = start_daemon("--backend", "onnxruntime", listen=listen)
    options = {"device": daemon.address, "on_death": "reload"}
    with ours.InferenceSession(sums().SerializeToString(), providers=[(NNRT, options)]) as session:
        for _ in range(2):
            binding = session.io_binding()
            for name, array in FEED.items():
                binding.bind_cpu_input(name, array)
            binding.bind_output("s", "nnrt")
            session.run_with_iobinding(binding)
            require_equal(binding.copy_outputs_to_cpu()[0].copy(), X + Y)
            del binding
            daemon.kill()
            daemon = start_daemon("--backend", "onnxruntime", listen=listen)
            until(lambda: not placed_model(session).session.device.is_connected)
            require_equal(session.run(["s"], FEED), [X + Y])


def test_sessions_end_when_nobody_refers_to_them(start_daemon: StartDaemon) -> None:
    """The shared connection closes with the last session, which the daemon sees."""
    daemon = start_daemon("--backend", "onnxruntime")
    providers = [(NNRT, {"device": daemon.address})]
    sessions = [ours.InferenceSession(sums().SerializeToString(), providers=providers) for _ in range(2)]
    assert len({id(placed_model(session).connection) for session in sessions}) == 1
    require_equal(sessions[0].run(["s"], FEED), [X + Y])
    sessions.pop()
    require_equal(sessions[0].run(["s"], FEED), [X + Y])
    connection = placed_model(sessions[0]).connection
    sessions.clear()
    gc.collect()
    until(lambda: not connection.is_open)
