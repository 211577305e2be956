"""Nodes whose inputs are all known: computed at import, by onnx's reference evaluator."""

import math
from collections.abc import Sequence

import numpy as np
from onnx import NodeProto, helper
from onnx.reference import ReferenceEvaluator

from nnrt_client.onnx_import.inference import inferred_kinds, type_proto
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.tensor import NUMPY_DTYPES, Array

# What is cheap for its size, whatever the numbers are.
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
# A result may be as large as this, or as what it is made from.
_MOST_BYTES = 16 << 20


def folded(node: NodeProto, opset: int, inputs: Sequence[Value | None]) -> list[Array] | None:
    """The outputs of a node whose inputs are constants; None where it is not to be computed here."""
    given = {name: value for name, value in zip(node.input, inputs, strict=False) if value is not None}
    if node.op_type not in FOLDABLE or not given or not all(value.is_constant for value in given.values()):
        return None
    outputs = [name for name in node.output if name]
    kinds = inferred_kinds([node], {"": opset}, given, outputs)
    allowed = max(_MOST_BYTES, sum(_size(value.dtype, value.dims) for value in given.values()))
    if any(name not in kinds or _size(*kinds[name]) > allowed for name in outputs):
        return None
    typed = [helper.make_value_info(name, type_proto(value)) for name, value in given.items()]
    wanted = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "node", typed, wanted)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, {name: value.array for name, value in given.items()})
    except Exception:  # Whatever it can't compute is for the device.
        return None
    arrays = [np.asarray(result) for result in results]
    return arrays if all(array.dtype in NUMPY_DTYPES.values() for array in arrays) else None


def _size(dtype: np.dtype[np.generic], dims: Sequence[object]) -> int:
    """Bytes; where a dimension is not known, more than anything."""
    return math.prod(dims) * dtype.itemsize if all(isinstance(dim, int) for dim in dims) else 1 << 62  # type: ignore[arg-type]
