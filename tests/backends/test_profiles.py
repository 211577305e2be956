"""What backends tell of the operators of a run."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from loaded import loaded
from net import Net
from nnrt_backend_onnxruntime import profiling
from nnrt_backend_onnxruntime.backend import OnnxRuntimeBackend
from numpy.typing import NDArray
from onnx import parser
from onnxruntime_graphs import backend

from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import OperationFailed, OutOfMemory, TimedOut
from nnrt_hdi.graph import Graph
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.part import Part

X = np.arange(48, dtype=np.float32).reshape(6, 8)
CONFIG = ModelConfig(accepts_programs=True)
# What the ONNX Runtime backend does besides.
OWN = ["open a session to profile", "run once before"]


def products() -> Graph:
    """Two products, which no optimization makes one."""
    net = Net()
    x = net.input(*X.shape)
    y = net.op(NodeType.MATMUL_FUSION, x, net.weights(8, 5))
    return net.graph(net.op(NodeType.MATMUL_FUSION, net.op(NodeType.EXPFUSION, y), net.weights(5, 3)))


@pytest.fixture(scope="module")
def onnxruntime() -> Iterator[OnnxRuntimeBackend]:
    made = backend()
    made.start(1 << 34, accepts_programs=True)
    yield made
    made.close()


def program(onnxruntime: OnnxRuntimeBackend, text: str) -> PreparedModel:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')
    return onnxruntime.load_program("onnx", [Part.of(model.SerializeToString())], CONFIG, lambda _: None)


def require_in_order(times: Sequence[OperatorTime]) -> None:
    """One after another, none of which takes no time."""
    ends = [time.began_ns + time.took_ns for time in times]
    assert all(end <= later.began_ns for end, later in zip(ends, times[1:], strict=False)), times
    assert all(time.began_ns >= 0 and time.took_ns >= 0 for time in times)


def test_reference() -> None:
    model = loaded("reference").prepare(products(), CONFIG, lambda _: None)
    (output,), times = model.profile([X], Cancellation())
    np.testing.assert_array_equal(output, model.run([X], Cancellation())[0])
    assert [time.operator for time in times] == ["MATMUL_FUSION", "EXPFUSION", "MATMUL_FUSION"]
    require_in_order(times)


def of_a_graph(onnxruntime: OnnxRuntimeBackend) -> PreparedModel:
    return onnxruntime.prepare(products(), CONFIG, lambda _: None)


def restored(onnxruntime: OnnxRuntimeBackend) -> PreparedModel:
    return onnxruntime.restore(of_a_graph(onnxruntime).export(), CONFIG)


def of_a_program(onnxruntime: OnnxRuntimeBackend) -> PreparedModel:
    weights = ", ".join(str(number / 7) for number in range(40))
    return program(
        onnxruntime,
        f"g (float[6,8] x) => (float[6,5] y) <float[8,5] w = {{{weights}}}> {{ y0 = MatMul(x, w) y = Exp(y0) }}",
    )


@pytest.mark.parametrize("make", [of_a_graph, restored, of_a_program])
def test_onnxruntime(onnxruntime: OnnxRuntimeBackend, make: Any) -> None:
    model = make(onnxruntime)
    (output,), times = model.profile([X], Cancellation())
    np.testing.assert_array_equal(output, model.run([X], Cancellation())[0])
    assert [time.operator for time in times[:2]] == OWN
    assert {"MatMul", "Exp"} <= {time.operator for time in times[2:]}
    require_in_order(times)
    model.close()


def test_operators_of_a_loop_are_told_once_per_iteration(onnxruntime: OnnxRuntimeBackend) -> None:
    model = program(
        onnxruntime,
        """g (int64 n, float[4] x) => (float[4] y) {
            y = Loop (n, , x) <body = b (int64 i, bool go, float[4] before) => (bool on, float[4] after) {
                on = Identity(go)
                after = Exp(before)
            }>
        }""",
    )
    _, times = model.profile([np.array(3), np.zeros(4, np.float32)], Cancellation())
    assert [time.operator for time in times].count("Exp") == 3


def test_a_profile_that_is_too_long(onnxruntime: OnnxRuntimeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "_MOST_BYTES", 100)
    with pytest.raises(OutOfMemory, match="the profile of the run has"):
        of_a_graph(onnxruntime).profile([X], Cancellation())


@pytest.mark.parametrize("name", ['","ts":"', "[" * 100_000, "\\", "\x00\n"])
def test_names_that_make_a_profile_unreadable(onnxruntime: OnnxRuntimeBackend, name: str) -> None:
    """ONNX Runtime writes them as they are."""
    node = onnx.helper.make_node("Exp", ["x"], ["y"], name=f'{name}"' if name != "\\" else name)
    described = [onnx.helper.make_tensor_value_info(one, 1, [2]) for one in "xy"]
    file = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", described[:1], described[1:]),
        ir_version=10,
        opset_imports=[onnx.helper.make_opsetid("", 21)],
    )
    model = onnxruntime.load_program("onnx", [Part.of(file.SerializeToString())], CONFIG, lambda _: None)
    given: list[NDArray[Any]] = [np.zeros(2, np.float32)]
    try:
        _, times = model.profile(given, Cancellation())
    except OperationFailed as error:
        assert "can't be read" in error.message
    else:
        require_in_order(times)
    assert model.run(given, Cancellation())[0].tolist() == [1, 1]


def test_a_profile_leaves_no_file(
    onnxruntime: OnnxRuntimeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = of_a_graph(onnxruntime)
    model.profile([X], Cancellation())
    with pytest.raises(TimedOut):
        model.profile([X], Cancellation(deadline=0.0))
    assert not list(tmp_path.iterdir())
