"""ONNX models that NNRt's operators can't express, with inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper, parser

AnyArray = NDArray[Any]
IR_VERSION = 10
OPSET = 21
RUNTIME = "com.microsoft"
TREES = "ai.onnx.ml"

_rng = np.random.default_rng(3)


@dataclass(frozen=True)
class Case:
    """Model with the inputs of several runs, of different shapes."""

    name: str
    model: onnx.ModelProto
    feeds: Sequence[Mapping[str, AnyArray]]

    @property
    def file(self) -> bytes:
        return self.model.SerializeToString()


def in_process(file: bytes | str, feed: Mapping[str, AnyArray]) -> list[AnyArray]:
    """Run a model in ONNX Runtime in this process, and return the outputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feed)))


def parsed(text: str, *initializers: onnx.TensorProto, opset: int = OPSET, ir_version: int = IR_VERSION) -> Any:
    """Return a model from the text of its graph."""
    header = f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "{RUNTIME}" : 1, "{TREES}" : 3]>\n'
    model = parser.parse_model(header + text)
    model.graph.initializer.extend(initializers)
    return model


def weights(name: str, *shape: int) -> onnx.TensorProto:
    """Return random numbers that depend only on name and shape."""
    rng = np.random.default_rng([*name.encode(), *shape])
    return numpy_helper.from_array(rng.standard_normal(shape).astype("f4") / 8, name)


def _numbers(*shape: int) -> AnyArray:
    return _rng.standard_normal(shape).astype("f4")


LOOP = """
sums (int64 times, float[N, 4] x) => (float[N, 4] y, float[M, N, 4] each) {
    yes = Constant <value = bool {1}> ()
    y, each = Loop (times, yes, x) <body = one (int64 at, bool was, float[N, 4] sum) => (bool goes_on, float[N, 4] next, float[N, 4] out) {
        goes_on = Identity (was)
        next = Add (sum, x)
        out = Mul (next, x)
    }>
}
"""  # noqa: E501
SCAN = """
running (float[T, 3] x) => (float[3] last, float[T, 3] all) {
    zero = Constant <value = float[3] {0.0, 0.0, 0.0}> ()
    last, all = Scan <num_scan_inputs = 1, body = one (float[3] sum, float[3] row) => (float[3] next, float[3] out) {
        next = Add (sum, row)
        out = Identity (next)
    }> (zero, x)
}
"""
IF = """
sign (float[N] x) => (float[M] y) {
    zero = Constant <value = float {0.0}> ()
    sum = ReduceSum <keepdims = 0> (x)
    positive = Greater (sum, zero)
    y = If (positive) <
        then_branch = doubled () => (float[A] a) { a = Concat <axis = 0> (x, x) },
        else_branch = negated () => (float[B] b) { b = Neg (x) }
    >
}
"""
SUPPRESSION = """
best (float[1, N, 4] boxes, float[1, C, N] scores) => (int64[K, 3] y) {
    most = Constant <value = int64 {3}> ()
    overlap = Constant <value = float {0.5}> ()
    y = NonMaxSuppression (boxes, scores, most, overlap)
}
"""
GRU = """
steps (float[T, B, 8] x) => (float[T, 1, B, 16] y, float[1, B, 16] last) {
    y, last = GRU <hidden_size = 16, linear_before_reset = 1> (x, w, r)
}
"""
SEQUENCE = """
pieces (float[N, 4] x) => (float[N, K] y) {
    parts = SplitToSequence <axis = 0, keepdims = 1> (x)
    empty = SequenceEmpty ()
    first = Constant <value = int64 {0}> ()
    one = SequenceAt (parts, first)
    all = SequenceInsert (parts, one)
    length = SequenceLength (all)
    joined = ConcatFromSequence <axis = 0> (all)
    shape = Shape <end = 1> (x)
    begin = Constant <value = int64[1] {0}> ()
    rows = Slice (joined, begin, shape)
    y = Identity (rows)
}
"""
TEXTS = """
words (int64[N] x) => (int64[N] y) {
    text = ai.onnx.ml.LabelEncoder <keys_int64s = [1, 2], values_strings = ["a", "b"]> (x)
    y = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b"], values_int64s = [20, 10]> (text)
}
"""
FUNCTION = f"""
<ir_version: {IR_VERSION}, opset_import: ["" : {OPSET}, "own" : 1]>
twice (float[N] x) => (float[M] y) {{
    a = own.more (x)
    y = own.more (a)
}}
<opset_import: ["" : {OPSET}], domain: "own">
more (x) => (y) {{
    where = NonZero (x)
    flat = Squeeze (where)
    y = Gather (x, flat)
}}
"""

CASES = [
    Case(
        "Loop",
        parsed(LOOP),
        [{"times": np.array(times), "x": _numbers(rows, 4)} for times, rows in ((3, 2), (5, 1), (1, 7))],
    ),
    Case("Scan", parsed(SCAN), [{"x": _numbers(steps, 3)} for steps in (1, 6)]),
    Case("If", parsed(IF), [{"x": np.abs(_numbers(5))}, {"x": -np.abs(_numbers(4))}]),
    Case(
        "NonMaxSuppression",
        parsed(SUPPRESSION),
        [
            {"boxes": np.sort(np.abs(_numbers(1, count, 4)), axis=2), "scores": np.abs(_numbers(1, kinds, count))}
            for count, kinds in ((6, 2), (9, 1))
        ],
    ),
    Case(
        "NonZero",
        parsed("indices (float[N, M] x) => (int64[2, K] y) { r = Relu (x) y = NonZero (r) }"),
        [{"x": _numbers(3, 5)}, {"x": _numbers(1, 1)}],
    ),
    Case(
        "GRU",
        parsed(GRU, weights("w", 1, 48, 8), weights("r", 1, 48, 16)),
        [{"x": _numbers(steps, batch, 8)} for steps, batch in ((3, 2), (250, 1))],
    ),
    Case(
        "com.microsoft",
        parsed(
            """
            fused (float[N, 32] x) => (float[N, 64] y) {
                m = com.microsoft.FusedMatMul <transB = 1, alpha = 0.5> (x, w)
                y = com.microsoft.Gelu (m)
            }
            """,
            weights("w", 64, 32),
        ),
        [{"x": _numbers(3, 32)}],
    ),
    Case(
        "ai.onnx.ml",
        parsed(
            """
            line (float[N, 3] x) => (float[N, 1] y) {
                scaled = ai.onnx.ml.Scaler <offset = [0.5, 0.0, 1.0], scale = [2.0, 1.0, 0.5]> (x)
                y = ai.onnx.ml.LinearRegressor <coefficients = [1.0, 2.0, 3.0], intercepts = [0.25]> (scaled)
            }
            """
        ),
        [{"x": _numbers(4, 3)}],
    ),
    Case("sequences", parsed(SEQUENCE), [{"x": _numbers(2, 4)}]),
    Case("texts", parsed(TEXTS), [{"x": np.array([1, 2, 2])}]),
    Case("functions", parser.parse_model(FUNCTION), [{"x": np.array([1, 0, 2, 0], "f4")}]),
]


def external(directory: Any, *shape: int) -> Any:
    """Write a model with its weights in a separate file, and return its path."""
    model = parsed(
        "wide (float[N, M] x) => (int64[2, K] y) { m = MatMul (x, w) y = NonZero (m) }", weights("w", *shape)
    )
    path = directory / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    return path
