"""Strings, sequences and maps as inputs and outputs of programs, equal to ONNX Runtime in process."""

import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from cli.command import json_output, nnrt, refused
from conftest import StartDaemon
from daemon_process import DaemonProcess
from program_models import in_process, parsed
from same_values import require_equal

import nnrt_client.onnxruntime as ours
from nnrt_client import (
    DataType,
    InvalidParameter,
    NullPointer,
    Origin,
    OutOfMemory,
    ResidentTensor,
    Runtime,
    Settings,
    Tensor,
    TensorDesc,
    Unsupported,
    Way,
    load,
)
from nnrt_client.build.compilation import compilation_of
from nnrt_client.c_interface.adapter import last_error
from nnrt_client.c_interface.functions.executors import OH_NNExecutor_Construct
from nnrt_client.c_interface.handles import OH_NNCompilation
from nnrt_client.model_session.model_session import executor_of
from nnrt_client.onnx_import import program_from_onnx
from nnrt_hdi.packed_values import STRINGS, ValueType
from nnrt_hdi.tensor import Array

PROGRAM = (Way.PROGRAM,)
SAME = parsed("f (string[N] x) => (string[N] y) { y = Identity (x) }").SerializeToString()
PIXELS = np.arange(6, dtype="f4").reshape(3, 2)


def texts(*given: Any) -> Array:
    return np.array(given, object)


def file_of(text: str) -> bytes:
    data: bytes = parsed(text).SerializeToString()
    return data


# A graph, and the inputs of its runs, of different shapes.
CASES: dict[str, tuple[str, list[Mapping[str, Any]]]] = {
    "Identity": (
        "f (string[N] x) => (string[N] y) { y = Identity (x) }",
        [{"x": texts("a", "", "b\0c", "日本")}, {"x": np.empty(0, object)}, {"x": texts("x" * (1 << 20))}],
    ),
    "scalar": ("f (string x) => (string y) { y = Identity (x) }", [{"x": np.array("é", object)}]),
    "matrix": (
        "f (string[N, 2] x) => (string[2, N] y) { y = Transpose (x) }",
        [{"x": texts(["a", "b"])}, {"x": np.empty((0, 2), object)}],
    ),
    "StringNormalizer": (
        'f (string[N] x) => (string[M] y) { y = StringNormalizer <case_change_action = "UPPER", locale = "C", stopwords = ["the"]> (x) }',  # noqa: E501
        [{"x": texts("the", "cat", "sleeps")}],
    ),
    "StringConcat": (
        "f (string[N] x, string[N] z) => (string[N] y) { y = StringConcat (x, z) }",
        [{"x": texts("a", "ü"), "z": texts("", "\0")}],
    ),
    "StringSplit": (
        'f (string[N] x) => (string[N, K] y, int64[N] n) { y, n = StringSplit <delimiter = " "> (x) }',
        [{"x": texts("a cat sleeps", "")}, {"x": texts("one")}],
    ),
    "RegexFullMatch": (
        'f (string[N] x) => (bool[N] y) { y = RegexFullMatch <pattern = "[a-z]+"> (x) }',
        [{"x": texts("abc", "ABC")}],
    ),
    "LabelEncoder": (
        'f (string[N] x) => (int64[N] y) { y = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "é"], values_int64s = [3, 4]> (x) }',  # noqa: E501
        [{"x": texts("é", "a", "other")}],
    ),
    "TfIdfVectorizer": (
        """f (string[N] x) => (float[K] y) {
            y = TfIdfVectorizer <mode = "TF", min_gram_length = 1, max_gram_length = 1, max_skip_count = 0,
                ngram_counts = [0], ngram_indexes = [0, 1], pool_strings = ["cat", "é"]> (x)
        }""",
        [{"x": texts("cat", "é", "cat")}],
    ),
    "constant": (
        'f (int64[N] x) => (string[N] y) { w = Constant <value_strings = ["a", "é"]> () y = Gather (w, x) }',
        [{"x": np.array([1, 0, 1])}],
    ),
    "ZipMap of numbers": (
        "f (float[N, 2] x) => (seq(map(int64, float)) y) { y = ai.onnx.ml.ZipMap <classlabels_int64s = [3, -4]> (x) }",
        [{"x": PIXELS}, {"x": PIXELS[:1]}],
    ),
    "ZipMap of strings": (
        """f (float[N, 2] x) => (seq(map(string, float)) y, float[N, 2] z) {
            y = ai.onnx.ml.ZipMap <classlabels_strings = ["a", "é"]> (x)
            z = Neg (x)
        }""",
        [{"x": PIXELS}],
    ),
    "sequence": (
        "f (float[N, 2] x) => (seq(float[]) y) { y = SplitToSequence <keepdims = 0> (x) }",
        [{"x": PIXELS}, {"x": PIXELS[:0]}],
    ),
    "ragged sequence": (
        """f (float[N, 2] x) => (seq(float[]) y) {
            z = Transpose (x)
            s = Shape (x)
            f = Cast <to = 1> (s)
            y = SequenceConstruct (x, z, f)
        }""",
        [{"x": PIXELS}],
    ),
    "sequence of strings": (
        "f (string[N] x) => (seq(string[]) y) { y = SequenceConstruct (x, x) }",
        [{"x": texts("a", "b")}],
    ),
    "optional": ("f (float[N] x) => (optional(float[N]) y) { y = Optional (x) }", [{"x": PIXELS[0]}]),
}


@pytest.fixture(scope="module")
def remote() -> Iterator[DaemonProcess]:
    daemon = DaemonProcess("--backend", "onnxruntime", "--no-shared-memory")
    yield daemon
    daemon.kill()


@pytest.fixture(scope="module")
def isolating() -> Iterator[DaemonProcess]:
    daemon = DaemonProcess("--backend", "onnxruntime", "--isolate", "programs")
    yield daemon
    daemon.kill()


@pytest.mark.parametrize(("text", "feeds"), CASES.values(), ids=CASES)
def test_equals_onnx_runtime_in_process(
    onnxruntime_daemon: DaemonProcess, text: str, feeds: list[Mapping[str, Any]]
) -> None:
    file = file_of(text)
    with load(file, onnxruntime_daemon.address, ways=PROGRAM) as session:
        for feed in 2 * feeds:
            require_equal(list(session.run(feed).values()), in_process(file, feed))
            require_equal(list(session.submit(feed).result(20).values()), in_process(file, feed))


@pytest.mark.parametrize("compression", ["none", "deflate"])
def test_across_a_network(remote: DaemonProcess, compression: str) -> None:
    """The longest ones in chunks."""
    with load(SAME, remote.address, ways=PROGRAM, settings=Settings(compression=compression)) as session:
        for count in (0, 1, 1000, 300_000):
            given = texts(*(f"wörd {number}" for number in range(count)))
            require_equal(session.run({"x": given})["y"], given)


def test_in_a_process_of_its_own(isolating: DaemonProcess) -> None:
    for text, feeds in (CASES["StringSplit"], CASES["ZipMap of strings"], CASES["scalar"]):
        file = file_of(text)
        with load(file, isolating.address, ways=PROGRAM) as session:
            for feed in feeds:
                require_equal(list(session.run(feed).values()), in_process(file, feed))


def test_a_pool_goes_on_without_a_killed_daemon(start_daemon: StartDaemon) -> None:
    daemons = [start_daemon("--backend", "onnxruntime", "--name", name) for name in ("a", "b")]
    with load(SAME, [daemon.address for daemon in daemons], ways=PROGRAM) as session:
        given = texts("a", "ü\0")
        require_equal(session.run({"x": given})["y"], given)
        daemons[0].kill()
        for _ in range(10):
            require_equal(session.run({"x": given})["y"], given)


def test_a_restarted_daemon_gets_it_again(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """Its store knows the program, with the types of its values."""
    options = ("--backend", "onnxruntime", "--store-dir", str(tmp_path / "store"))
    listen = f"unix:{tmp_path / 'socket'}"
    daemon = start_daemon(*options, listen=listen)
    with load(SAME, daemon.address, ways=PROGRAM, on_death="reload") as session:
        require_equal(session.run([["a"]])["y"], texts("a"))
        daemon.send(signal.SIGTERM)  # It finishes what is being written.
        daemon.wait()
        start_daemon(*options, listen=listen)
        require_equal(session.run([["b"]])["y"], texts("b"))
        assert session.report.origin is Origin.STORED


def test_what_a_session_says(onnxruntime_daemon: DaemonProcess) -> None:
    text, _ = CASES["ZipMap of strings"]
    with load(file_of(text), onnxruntime_daemon.address, ways=PROGRAM) as session:
        assert session.values == {"y": ValueType("seq(map(string,tensor(float)))")}
        assert [desc.shape for desc in session.outputs] == [(-1,), (-1, 2)]
        assert list(session.run([PIXELS], outputs=["z"])) == ["z"]
    with load(file_of(CASES["matrix"][0]), onnxruntime_daemon.address, ways=PROGRAM) as session:
        assert session.values == {"x": ValueType(STRINGS, (-1, 2)), "y": ValueType(STRINGS, (2, -1))}
        assert str(session.values["x"]) == "tensor(string)[?, 2]"


def test_tensors_have_the_packed_form(onnxruntime_daemon: DaemonProcess) -> None:
    packed = ValueType(STRINGS).pack(["a", "ü"])
    with load(SAME, onnxruntime_daemon.address, ways=PROGRAM) as session:
        x = Tensor(session.device, TensorDesc(DataType.UINT8, [packed.size]))
        y = ResidentTensor(session.device, TensorDesc(DataType.UINT8, [-1]), 1024)
        with x, y:
            x.numpy()[...] = packed
            assert session.run({"x": x}, outputs={"y": y})["y"] is y
            np.testing.assert_array_equal(y.numpy(), packed)
            require_equal(session.run({"x": y})["y"], texts("a", "ü"))


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (np.ones(2, "f4"), InvalidParameter, r"input 'x': it is float32\[2\]; give strings"),
        ([1, 2], InvalidParameter, "input 'x': element 0 is int; give str, or bytes in UTF-8"),
        ([["a"]], InvalidParameter, r"input 'x': its shape is \[1, 1\]; the model takes tensor\(string\)\[\?\]"),
        (None, NullPointer, r"input 'x': it is None; give tensor\(string\)\[\?\]"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_inputs_that_do_not_fit(
    onnxruntime_daemon: DaemonProcess, given: Any, error: type[Exception], said: str
) -> None:
    with load(SAME, onnxruntime_daemon.address, ways=PROGRAM) as session:
        with pytest.raises(error, match=said):
            session.run({"x": given})
        require_equal(session.run({"x": ["a"]})["y"], texts("a"))


def test_packed_bytes_that_are_hostile(onnxruntime_daemon: DaemonProcess) -> None:
    """Executors send bytes as they are."""
    good = ValueType(STRINGS).pack(["one", "zwölf", ""])
    rng = np.random.default_rng(5)
    with load(SAME, onnxruntime_daemon.address, ways=PROGRAM) as session:
        executor = executor_of(session)
        for at in range(good.size):
            for packed in (good[:at], np.concatenate([good, good[:at]]), _changed(good, at, rng)):
                try:
                    (result,) = executor.run_sync([packed])
                except InvalidParameter as error:
                    assert error.place == "input 'x'"
                else:
                    np.testing.assert_array_equal(ValueType(STRINGS).pack(ValueType(STRINGS).unpack(result)), result)
        for given in ("a", [["a"]], [[["a"]]]):
            with pytest.raises(InvalidParameter, match=r"input 'x': its shape is .*; the model takes tensor\(string\)"):
                executor.run_sync([ValueType(STRINGS).pack(given)])
        require_equal(session.run([["a"]])["y"], texts("a"))


def _changed(good: Array, at: int, rng: np.random.Generator) -> Array:
    changed: Array = good.copy()
    changed[at] = rng.integers(256)
    return changed


def test_strings_count_as_memory(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "onnxruntime", "--tensor-bytes", str(1 << 20))
    with load(SAME, daemon.address, ways=PROGRAM) as session:
        with pytest.raises(OutOfMemory, match="input 'x': its strings need 1920000 bytes"):
            session.run([[""] * 60_000])
        assert session.run([[""] * 10_000])["y"].shape == (10_000,)


def test_c_programs_have_no_strings(onnxruntime_daemon: DaemonProcess) -> None:
    with (
        Runtime([onnxruntime_daemon.address]) as runtime,
        compilation_of(program_from_onnx(SAME), runtime.device()) as compilation,
    ):
        compilation.build()
        assert OH_NNExecutor_Construct(OH_NNCompilation(compilation)) is None
    error = last_error()
    assert isinstance(error, Unsupported)
    assert "takes or returns tensor(string)[?], and a C program has tensors of numbers only" in error.message


# ---- ONNX Runtime's interface


@pytest.fixture
def provider(onnxruntime_daemon: DaemonProcess) -> list[Any]:
    return [("NnrtExecutionProvider", {"device": onnxruntime_daemon.address, "cache": "0"})]


@pytest.mark.parametrize("name", ["StringSplit", "ZipMap of numbers", "sequence of strings"])
def test_the_interface_of_onnx_runtime(provider: list[Any], name: str) -> None:

    text, (feed, *_) = CASES[name]
    file = file_of(text)
    theirs = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    with ours.InferenceSession(file, providers=provider) as mine:
        require_equal(mine.run(None, feed), theirs.run(None, feed))
        for here, there in zip(
            (*mine.get_inputs(), *mine.get_outputs()), (*theirs.get_inputs(), *theirs.get_outputs()), strict=True
        ):
            assert (here.name, here.type) == (there.name, there.type)
            assert there.type.startswith("tensor") or here.shape == there.shape


def test_misfits_in_the_interface_of_onnx_runtime(provider: list[Any]) -> None:
    with ours.InferenceSession(SAME, providers=provider) as session:
        with pytest.raises(
            ours.capi.onnxruntime_pybind11_state.InvalidArgument, match=r"expected: \(tensor\(string\)\)"
        ):
            session.run(None, {"x": np.ones(2, "f4")})
        with pytest.raises(ours.capi.onnxruntime_pybind11_state.InvalidArgument, match="Invalid rank for input: x"):
            session.run(None, {"x": texts(["a"])})
        value = ours.OrtValue.ortvalue_from_numpy(texts("a"))
        assert (value.data_type(), value.element_type()) == ("tensor(string)", onnx.TensorProto.STRING)
        (result,) = session.run_with_ort_values(None, {"x": value})
        require_equal(result.numpy(), texts("a"))
        binding = session.io_binding()
        binding.bind_cpu_input("x", texts("b"))
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        require_equal(binding.copy_outputs_to_cpu(), [texts("b")])
        binding.bind_output("y", "nnrt")
        with pytest.raises(ours.capi.onnxruntime_pybind11_state.Fail, match=r"output 'y' is tensor\(string\)"):
            session.run_with_iobinding(binding)
    with (
        ours.InferenceSession(file_of(CASES["sequence"][0]), providers=provider) as session,
        pytest.raises(ours.capi.onnxruntime_pybind11_state.NotImplemented, match="output 'y' is no tensor"),
    ):
        session.run_with_ort_values(None, {"x": ours.OrtValue.ortvalue_from_numpy(PIXELS)})


# ---- commands


def test_commands(onnxruntime_daemon: DaemonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model, words, out = tmp_path / "model.onnx", tmp_path / "words.npy", tmp_path / "out"
    model.write_bytes(file_of(CASES["StringSplit"][0]))
    np.save(words, np.array(["a cat", "ü"]))
    device = ("--device", onnxruntime_daemon.address)
    document = json_output("run", model, *device, "--input", words, "--output", out)
    assert document["outputs"][0] | {"file": ""} == {
        "name": "y", "data_type": STRINGS, "shape": [2, 2], "min": None, "max": None, "file": "",
    }  # fmt: skip
    assert (out / "y.json").read_text() == '[["a", "cat"], ["ü", ""]]'
    assert np.load(out / "n.npy").tolist() == [2, 1]
    assert STRINGS in nnrt("run", model, *device, "--input", words).stdout
    assert "input 'x' is tensor(string)[?]; give its array by --input x=FILE" in refused(2, "bench", model, *device)
    inspected = json_output("inspect", model)
    assert [one["data_type"] for one in inspected["inputs"]] == ["STRING"]


def test_no_other_inputs(onnxruntime_daemon: DaemonProcess) -> None:
    with pytest.raises(Unsupported, match="input 'x': it is map"):
        load(
            file_of("f (map(int64, float) x) => (float[N] y) { y = ai.onnx.ml.CastMap (x) }"),
            onnxruntime_daemon.address,
            ways=PROGRAM,
        )
