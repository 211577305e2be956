"""Choice of the data type in which an operator is computed.

Engines lack kernels for some types, mostly narrow integers. Then operands are cast to a type that can represent all
their elements, and for which there is a kernel, provided that the result is the same. Integers wrap around when they
are cast back.
"""

from dataclasses import replace

import numpy as np

from nnrt_hdi.errors import Unsupported
from nnrt_hdi.tensor import data_type_of
from nnrt_onnx_lowering.engine import AnyDType, Engine, Operator, names

# For each type, the types that can represent all its elements, in the order to try them.
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
# Operators whose results are elements of the operands, or compare them: integers may be cast to floats.
_SELECTS = names(
    """
    ArgMax Concat DepthToSpace Equal Expand Flatten Gather GatherElements GatherND Greater GreaterOrEqual Identity Less
    LessOrEqual Max MaxPool Min Pad ReduceMax ReduceMin Reshape Resize ScatterND Slice SpaceToDepth Split Squeeze Tile
    TopK Transpose Unsqueeze Where
    """
)
# Operators that don't depend on how the bits of an integer are interpreted: UINT64 may be cast to INT64.
_OF_BITS = names(
    """
    Add Concat DepthToSpace Equal Expand Flatten Gather GatherElements GatherND Identity MatMul Mul Neg Pad ReduceProd
    ReduceSum ReduceSumSquare Reshape Resize ScatterElements ScatterND Slice SpaceToDepth Split Squeeze Sub Tile
    Transpose Unsqueeze Where
    """
)


def computation_type(engine: Engine, operator: Operator, dtype: AnyDType) -> AnyDType:
    """Return the type in which the engine computes an operator whose leading operand has type `dtype`.

    Returns:
        `dtype` if the engine supports it, else a type that can represent its elements.

    Raises:
        Unsupported: There is no such type.
    """
    if engine.takes(operator):
        return dtype
    for candidate in _WIDER.get(dtype.name, ()):
        if (dtype.name, candidate) == ("uint64", "int64") and operator.type not in _OF_BITS:
            continue
        if dtype.kind in "iub" and candidate.startswith("float") and operator.type not in _SELECTS:
            continue
        wide: AnyDType = np.dtype(candidate)
        if engine.takes(replace(operator, operands=widened_operands(operator, dtype, wide))):
            return wide
    raise Unsupported(f"{engine.name} has no {operator.type} kernel for {data_type_of(dtype).name}")


def widened_operands(operator: Operator, dtype: AnyDType, wide: AnyDType) -> tuple[AnyDType | None, ...]:
    """Return the types of the operands with `dtype` replaced by `wide`, except for the BOOL condition of Where."""
    return tuple(
        wide if known is not None and known == dtype and not (operator.type == "Where" and position == 0) else known
        for position, known in enumerate(operator.operands)
    )
