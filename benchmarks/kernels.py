"""Speed of the reference kernels per operator, compared with ONNX Runtime with one thread.

Each operator computes float32 tensors of a realistic size; images are NCHW on both sides. The ONNX models are those of
the tests' oracles. Both sides run in this process, alternately.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from harness import Report, Run, at_most, in_rounds, pair_cells
from operators.oracles.oracle import ORACLES, Onnx
from operators.single_node import graph_of, prepare, spec
from working_client import repeat

from nnrt_hdi.backend import Cancellation
from nnrt_hdi.enums import ActivationType, Format, NodeType, PadMode, ReduceMode
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.tensor import data_type_of

ROUNDS = 7
ROUND_S = 0.02

N = NodeType
SAME = {"pad_mode": PadMode.SAME}
IMAGE = (1, 64, 56, 56)
TOKENS = (8, 128, 768)

Case = tuple[NodeType, Sequence[Any], dict[str, Any]]


def cases() -> Iterator[Case]:
    """Yield node types, their operands and attributes, family by family.

    An operand is a shape, or an array if the operand is constant.
    """
    yield from (
        (N.ACTIVATION, [TOKENS], {"activation_type": kind}) for kind in (ActivationType.RELU, ActivationType.GELU)
    )
    yield N.PRELU_FUSION, [IMAGE, (64,)], {}
    for node_type in (N.ADD_FUSION, N.MUL_FUSION, N.DIV_FUSION, N.MAXIMUM, N.SQUARED_DIFFERENCE):
        yield node_type, [TOKENS, TOKENS], {}
    yield N.BIAS_ADD, [IMAGE, (64,)], {}
    for node_type in (N.EXPFUSION, N.SQRT, N.ERF, N.ROUND, N.CLIP):
        yield node_type, [TOKENS], {"min": -1.0, "max": 1.0} if node_type is N.CLIP else {}
    yield N.GREATER, [TOKENS, TOKENS], {}
    for mode, axis in ((ReduceMode.MEAN, (2, 3)), (ReduceMode.SUM, (1,)), (ReduceMode.MAX, (-1,))):
        yield N.REDUCE_FUSION, [IMAGE, np.array(axis)], {"mode": mode}
    yield N.FULL_CONNECTION, [(32, 1024), (1000, 1024), (1000,)], {"has_bias": True}
    yield N.MATMUL_FUSION, [(512, 512), (512, 512)], {}
    yield N.MATMUL_FUSION, [(8, 12, 128, 64), (8, 12, 64, 128)], {}
    yield N.CONV2D_FUSION, [IMAGE, (64, 64, 3, 3), (64,)], SAME
    yield N.CONV2D_FUSION, [(1, 256, 28, 28), (128, 256, 1, 1), (128,)], {}
    yield N.CONV2D_FUSION, [(1, 3, 224, 224), (64, 3, 7, 7), (64,)], {**SAME, "stride": (2, 2)}
    yield N.CONV2D_FUSION, [(1, 96, 56, 56), (96, 1, 3, 3), (96,)], {**SAME, "group": 96}
    yield (
        N.CONV2D_TRANSPOSE_FUSION,
        [(1, 64, 28, 28), (32, 64, 4, 4), (32,)],
        {"stride": (2, 2), "pad_list": (1, 1, 1, 1)},
    )
    for node_type in (N.MAX_POOL_FUSION, N.AVGPOOL_FUSION):
        yield node_type, [(1, 64, 112, 112)], {"kernel_size": (3, 3), "strides": (2, 2), **SAME}
    yield N.FUSED_BATCH_NORM, [IMAGE, (64,), (64,), (64,), (64,)], {}
    yield N.SOFTMAX, [(8, 12, 128, 128)], {"axis": (-1,)}
    yield N.LOG_SOFTMAX, [(32, 1000)], {"axis": -1}
    yield N.LAYER_NORM_FUSION, [TOKENS, (768,), (768,)], {"begin_norm_axis": 2, "begin_params_axis": 2}
    yield N.INSTANCE_NORM, [IMAGE, (64,), (64,)], {}
    yield N.LRN, [IMAGE], {"depth_radius": 2, "bias": 1.0, "alpha": 0.0001, "beta": 0.75}
    yield N.TRANSPOSE, [(8, 128, 12, 64), np.array([0, 2, 1, 3])], {}
    yield N.CONCAT, [IMAGE, IMAGE], {"axis": 1}
    yield N.PAD_FUSION, [IMAGE, np.array([[0, 0], [0, 0], [1, 1], [1, 1]])], {}
    yield N.TILE_FUSION, [(64, 768), np.array([8, 1])], {}
    yield N.GATHER, [(30000, 256), np.arange(1024) * 7, np.array(0)], {}
    yield N.RESIZE, [(1, 32, 64, 64)], {"new_height": 128, "new_width": 128}
    yield N.DEPTH_TO_SPACE, [(1, 64, 56, 56)], {"block_size": 2}


def measure() -> Iterator[Report]:
    report = Report(
        "Reference kernels compared with ONNX Runtime",
        f"float32, both sides with one thread in one process, in {ROUNDS} alternating rounds; shown is the round with"
        " the median ratio. ratio: time of the reference backend divided by time of ONNX Runtime.",
        ("family", "operator", "operands", "reference ms", "ONNX Runtime ms", "ratio"),
    )
    for node_type, operands, attrs in cases():
        ways: dict[str, Callable[[], float]] = {
            name: partial(_mean_s, run) for name, run in _runs(node_type, operands, attrs).items()
        }
        theirs, ours = in_rounds(ways, ROUNDS).values()
        theirs_ms, ours_ms, ratio, _ = pair_cells(zip(theirs, ours, strict=True), ".1f", 1e3)
        kind = attrs.get("activation_type") or attrs.get("mode")
        name = f"{node_type.name} {kind.name}" if kind is not None else node_type.name
        shapes = " ".join("x".join(map(str, np.shape(each) if _is_constant(each) else each)) for each in operands)
        report.add(OPERATORS[node_type].family, name, shapes, ours_ms, theirs_ms, ratio)
    yield report


def _is_constant(operand: Any) -> bool:
    return isinstance(operand, np.ndarray)


def _runs(node_type: NodeType, operands: Sequence[Any], attrs: dict[str, Any]) -> dict[str, Run]:
    """Return functions that run the node in ONNX Runtime and in the reference backend."""
    random = np.random.default_rng(0)
    arrays = [given if _is_constant(given) else random.uniform(0.5, 2, given).astype(np.float32) for given in operands]
    layouts = [Format.NCHW if array.ndim == 4 else Format.NONE for array in arrays]
    known = [
        (spec(array.shape, data_type_of(array.dtype), layout), array if _is_constant(given) else None)
        for array, layout, given in zip(arrays, layouts, operands, strict=True)
    ]
    model = prepare(graph_of(node_type, known, attrs))
    inputs = [array for array, (_, value) in zip(arrays, known, strict=True) if value is None]
    onnx = Onnx(arrays)
    named = ORACLES[node_type](onnx, arrays, attrs, layouts[0])
    if isinstance(named, list):
        raise TypeError(f"{node_type.name} has no ONNX model")
    session = onnx.session((named,) if isinstance(named, str) else named)
    return {"theirs": lambda: session.run(None, onnx.feeds), "ours": lambda: model.run(inputs, Cancellation())}


def _mean_s(run: Run) -> float:
    return statistics.mean(repeat(run, at_most(ROUND_S, 0.001)))
