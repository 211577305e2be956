"""Constant folding: nodes whose inputs are all constants are computed at import, by onnx's reference evaluator."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import ModelProto, NodeProto, helper

from nnrt_client.onnx_import.functions import type_proto
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.tensor import NUMPY_DTYPES, Array

# Operators whose cost depends only on the sizes of inputs and outputs, not on their elements.
FOLDABLE = frozenset(
    """
    Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Clip Concat ConstantOfShape
    Cos Div Equal Erf Exp Expand EyeLike Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual IsInf
    IsNaN Less LessOrEqual Log Max Min Mod Mul Neg NonZero Not OneHot Or Pad Pow QuantizeLinear Range Reciprocal
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare Reshape ScatterND Sigmoid Sign Sin Slice Split Sqrt Squeeze Sub Sum Tanh Tile Transpose Trilu
    Unsqueeze Where Xor
    """.split()  # noqa: SIM905  (one name a line would take a page)
)
# Operators whose result has the shape of the broadcast inputs. `_elements` bounds the results of the others.
_BROADCAST = frozenset(
    """
    Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Expand Greater GreaterOrEqual Less LessOrEqual Max Min
    Mod Mul Or Pow Sub Sum Where Xor
    """.split()  # noqa: SIM905
)
_MOST_ELEMENTS = 4 << 20


def fold_node(node: NodeProto, opset: int, inputs: Sequence[Value | None]) -> list[Array] | None:
    """Return the outputs of a node with constant inputs, or None if the node can't or should not be folded."""
    given = {name: value for name, value in zip(node.input, inputs, strict=False) if value is not None}
    if node.op_type not in FOLDABLE or not given or not all(value.is_constant for value in given.values()):
        return None
    # Imported here because it is slow and few models need it.
    from onnx.reference import ReferenceEvaluator

    arrays = {name: value.array for name, value in given.items() if value.array is not None}
    total = sum(array.size for array in arrays.values())
    try:
        if _elements(node, list(arrays.values())) > max(_MOST_ELEMENTS, total):
            return None
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(_model(node, opset, given)).run(None, arrays)
    except Exception:  # What onnx can't compute is mapped to operations, or refused by the operator's function.
        return None
    made = [np.asarray(result) for result in results]
    return made if all(array.dtype in NUMPY_DTYPES.values() for array in made) else None


def _model(node: NodeProto, opset: int, given: Mapping[str, Value]) -> ModelProto:
    typed = [helper.make_value_info(name, type_proto(value)) for name, value in given.items()]
    wanted = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "node", typed, wanted)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def _elements(node: NodeProto, arrays: Sequence[Array]) -> int:
    """Return an upper bound of the number of elements that a node makes."""
    first, last = arrays[0], arrays[-1]
    match node.op_type:
        case "Expand" | "ConstantOfShape":
            return math.prod(max(int(size), 1) for size in last.reshape(-1)) * max(first.size, 1)
        case "Tile":
            return first.size * math.prod(max(int(times), 0) for times in last.reshape(-1))
        case "Range":
            start, limit, delta = (float(array.item()) for array in arrays)
            return math.ceil((limit - start) / delta)
        case "Pad":
            return (
                math.prod(size + int(np.abs(arrays[1]).sum()) for size in first.shape) if len(arrays) > 1 else 1 << 62
            )
        case "OneHot":
            return first.size * int(arrays[1].item())
        case "Gather" | "GatherND":
            return first.size * arrays[1].size
    if node.op_type in _BROADCAST:
        return math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))
    return sum(array.size for array in arrays) * max(first.ndim, 1)
