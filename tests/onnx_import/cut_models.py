"""ONNX models of which a device runs only a part: NNRt has no Acos, NonMaxSuppression, Loop and the like."""

from collections.abc import Callable

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx_models import Graph

RNG = np.random.default_rng(3)


def weights(*shape: int) -> NDArray[np.float32]:
    return np.asarray(RNG.standard_normal(shape) / 2, np.float32)


def convolved(graph: Graph, x: str, channels: int = 4) -> str:
    return str(graph.op("Conv", x, graph.constant(weights(channels, channels, 3, 3)), pads=[1, 1, 1, 1]))


def strange(graph: Graph, x: str) -> str:
    """Add acos of numbers between -1/2 and 1/2, where it doesn't amplify errors."""
    bounded = graph.op("Mul", graph.op("Tanh", x), graph.constant(np.array(0.5, np.float32)))
    return str(graph.op("Acos", bounded))


def unsupported_at_the_start() -> onnx.ModelProto:
    graph = Graph()
    return graph.model(convolved(graph, strange(graph, graph.input("x", ["n", 4, 8, "w"]))))


def unsupported_in_the_middle() -> onnx.ModelProto:
    graph = Graph()
    x = graph.op("Relu", convolved(graph, graph.input("x", ["n", 4, "h", "w"])))
    return graph.model(convolved(graph, strange(graph, x)))


def unsupported_at_the_end() -> onnx.ModelProto:
    graph = Graph()
    return graph.model(strange(graph, convolved(graph, graph.input("x", ["n", 4, 8, 8]))))


def diamond() -> onnx.ModelProto:
    """Build a model with parts on the device before and after a part in the client.

    The last part reads results of the other two, and the first part's result is also an output.
    """
    graph = Graph()
    first = convolved(graph, graph.input("x", ["n", 4, 16, 16]))
    second = convolved(graph, graph.op("Add", strange(graph, first), first))
    third = convolved(graph, graph.op("Mul", second, first))
    return graph.model(third, first)


def excitation() -> onnx.ModelProto:
    """Build a model whose parts exchange large tensors on the device, of which the client needs only small ones."""
    graph = Graph()
    first = convolved(graph, graph.input("x", ["n", 4, 32, 32]))
    strength = strange(graph, graph.op("GlobalAveragePool", first))
    return graph.model(convolved(graph, graph.op("Mul", first, strength)))


def two_towers() -> onnx.ModelProto:
    """Build a model with two independent branches that are both split."""
    graph = Graph()
    towers = [convolved(graph, strange(graph, convolved(graph, graph.input(name, ["n", 4, 8, 8])))) for name in "xz"]
    return graph.model(graph.op("Sub", *towers), towers[0])


def detector() -> onnx.ModelProto:
    """Build a detector with NonMaxSuppression, whose number of results depends on the numbers."""
    graph = Graph()
    features = graph.op("Relu", convolved(graph, graph.input("x", [1, 4, 8, 8])))
    flat = graph.op("Reshape", features, graph.constant(np.array([1, 4, 64], np.int64)))
    scores = graph.op("Sigmoid", graph.op("ReduceMean", flat, graph.constant(np.array([1], np.int64))))
    boxes = graph.op("Transpose", flat, perm=[0, 2, 1])
    limits = [graph.constant(np.array([number], dtype)) for number, dtype in ((5, "i8"), (0.5, "f4"), (0.1, "f4"))]
    chosen = graph.op("NonMaxSuppression", boxes, scores, *limits)
    index = graph.op("Gather", chosen, graph.constant(np.array(2, np.int64)), axis=1)
    return graph.model(graph.op("Gather", boxes, index, axis=1), chosen)


def loop_in_the_middle() -> onnx.ModelProto:
    """Build y = first + scale * own * tanh(y), repeated in a Loop.

    `scale` is a constant of the graph, `own` one of the loop's body.
    """
    graph = Graph()
    first = convolved(graph, graph.input("x", ["n", 4, 8, 8]))
    times = graph.input("times", [], np.int64)
    scale = graph.constant(np.array(0.9, np.float32))
    body = helper.make_graph(
        [
            helper.make_node("Tanh", ["state"], ["bounded"]),
            helper.make_node("Mul", ["bounded", scale], ["smaller"]),
            helper.make_node("Mul", ["smaller", "own"], ["scaled"]),
            helper.make_node("Add", ["scaled", first], ["next"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, ["n", 4, 8, 8]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, ["n", 4, 8, 8]),
        ],
        [numpy_helper.from_array(np.array([0.9], np.float32), "own")],
    )
    turned = graph.op("Loop", times, graph.constant(np.array(True)), first, body=body)
    return graph.model(convolved(graph, turned))


def branch() -> onnx.ModelProto:
    """Build a model with an If that depends on the numbers; both branches read a result of the device."""
    graph = Graph()
    first = convolved(graph, graph.input("x", [2, 4, 8, 8]))
    mean = graph.op("ReduceMean", first, keepdims=0)
    condition = graph.op("Greater", mean, graph.constant(np.array(0, np.float32)))
    info = helper.make_tensor_value_info("taken", TensorProto.FLOAT, [2, 4, 8, 8])
    branches = [
        helper.make_graph([helper.make_node(kind, [first], ["taken"])], kind, [], [info]) for kind in ("Neg", "Tanh")
    ]
    taken = graph.op("If", condition, then_branch=branches[0], else_branch=branches[1])
    return graph.model(convolved(graph, taken))


def data_dependent() -> onnx.ModelProto:
    """Build a model whose number of rows in the last part depends on the numbers, and may be 0."""
    graph = Graph()
    rows = graph.op("MatMul", graph.input("x", ["n", 8]), graph.constant(weights(8, 8)))
    largest = graph.op("ReduceMax", rows, graph.constant(np.array([1], np.int64)), keepdims=0)
    found = graph.op("NonZero", graph.op("Greater", largest, graph.constant(np.array(1.5, np.float32))))
    chosen = graph.op("Gather", rows, graph.op("Squeeze", found, graph.constant(np.array([0], np.int64))))
    return graph.model(graph.op("Relu", graph.op("MatMul", chosen, graph.constant(weights(8, 4)))))


def of_another_domain() -> onnx.ModelProto:
    """Build a model with Inverse, whose shape only ONNX Runtime can infer."""
    graph = Graph()
    x = graph.op("MatMul", graph.input("x", ["n", 3, 3]), graph.constant(weights(3, 3)))
    regular = graph.op("Add", x, graph.constant(np.eye(3, dtype=np.float32) * 9))
    inverse = graph.op("Inverse", regular, domain="com.microsoft")
    model = graph.model(graph.op("MatMul", inverse, graph.constant(weights(3, 3))))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def sequence() -> onnx.ModelProto:
    """Build a model whose parts exchange a sequence, with an input and a constant among its outputs."""
    graph = Graph()
    x = graph.input("x", ["n", 4, 8, 8])
    pieces = graph.op("SplitToSequence", x, graph.constant(np.array(2, np.int64)), axis=1)
    first = graph.op("SequenceAt", pieces, graph.constant(np.array(0, np.int64)))
    second = convolved(graph, graph.op("Concat", first, first, axis=1))
    last = graph.op("SequenceAt", graph.op("SequenceInsert", pieces, second), graph.constant(np.array(-1, np.int64)))
    return graph.model(last, second, x, graph.constant(weights(3)))


MODELS: list[Callable[[], onnx.ModelProto]] = [
    unsupported_at_the_start,
    unsupported_in_the_middle,
    unsupported_at_the_end,
    diamond,
    excitation,
    two_towers,
    detector,
    loop_in_the_middle,
    branch,
    data_dependent,
    of_another_domain,
    sequence,
]
