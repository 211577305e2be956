"""The data type to compute an operator in.

Engines lack kernels for some types, mostly narrow integers. Elements of those are cast to a type that holds them and
for which there is a kernel, where the result is the same: integers that wrap around do so on the way back.
"""

from dataclasses import replace

import numpy as np

from nnrt_hdi.errors import Unsupported
from nnrt_hdi.tensor import data_type_of
from nnrt_onnx_lowering.engine import AnyDType, Engine, Operator, names

# Types that hold every element of another, in the order to try them.
_WIDER = {
    "bool": ("uint8", "int32", "float32"),
    "int8": ("int32", "int64", "float32"),
    "uint8": ("int32", "int64", "float32"),
    "int16": ("int32", "int64", "float32"),
    "uint16": ("int32", "int64", "float32"),
    "int32": ("int64", "float64"),
    "uint32": ("int64", "float64"),
    "uint64": ("int64",),
    "float16": ("float32",),
}
# Results are elements of the operands, or say how these compare: integers may be real numbers on the way.
_SELECTS = names(
    """
    ArgMax Concat DepthToSpace Equal Expand Flatten Gather GatherElements GatherND Greater GreaterOrEqual Identity Less
    LessOrEqual Max MaxPool Min Pad ReduceMax ReduceMin Reshape Resize ScatterND Slice SpaceToDepth Split Squeeze Tile
    TopK Transpose Unsqueeze Where
    """
)
# What doesn't depend on which numbers the bits of an integer stand for: UINT64 may be INT64 on the way.
_OF_BITS = names(
    """
    Add Concat DepthToSpace Equal Expand Flatten Gather GatherElements GatherND Identity MatMul Mul Neg Pad ReduceProd
    ReduceSum ReduceSumSquare Reshape Resize ScatterElements ScatterND Slice SpaceToDepth Split Squeeze Sub Tile
    Transpose Unsqueeze Where
    """
)


def computed_in(engine: Engine, operator: Operator, dtype: AnyDType) -> AnyDType:
    """The type in which an engine computes an operator whose leading operands are of a type: that one if it takes it,
    else one that holds its elements. Raises Unsupported where there is none."""
    if engine.takes(operator):
        return dtype
    for candidate in _WIDER.get(dtype.name, ()):
        if (dtype.name, candidate) == ("uint64", "int64") and operator.type not in _OF_BITS:
            continue
        if dtype.kind in "iub" and candidate.startswith("float") and operator.type not in _SELECTS:
            continue
        wide: AnyDType = np.dtype(candidate)
        if engine.takes(replace(operator, operands=widened(operator, dtype, wide))):
            return wide
    raise Unsupported(f"{engine.name} has no {operator.type} kernel for {data_type_of(dtype).name}")


def widened(operator: Operator, dtype: AnyDType, wide: AnyDType) -> tuple[AnyDType | None, ...]:
    """The types of operands where those of one type are cast to another; the condition of a choice stays BOOL."""
    return tuple(
        wide if known is not None and known == dtype and not (operator.type == "Where" and position == 0) else known
        for position, known in enumerate(operator.operands)
    )
