"""Conversion between real and quantized tensors."""

from collections.abc import Sequence
from typing import Annotated

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.ops.operands import FLOATS, declared_data_type, normalized_axis
from nnrt_hdi.ops.operator import Accepts, Operand, operator, refuse
from nnrt_hdi.ops.quantized import QUANTIZED_TYPES, Scaling, scaling_of
from nnrt_hdi.tensor import QuantParam, TensorSpec, data_type_from_number

Converted = Annotated[Operand, Accepts(FLOATS | QUANTIZED_TYPES.keys())]


@operator(NodeType.QUANT_DTYPE_CAST_V2, sees_quantization=True)
def quant_dtype_cast(
    x: Converted, *, src_t: int, dst_t: int, axis: int = 0, declared: tuple[TensorSpec, ...]
) -> TensorSpec:
    """q = clamp(round(r / scale + zero_point)) with halves away from zero, r = (q - zero_point) scale, or both.

    Both convert from one quantization to another. src_t and dst_t are the data types of x and y: FLOAT16, FLOAT32 or
    FLOAT64 for real numbers r, INT8 or UINT8 for quantized q. The parameters are those of the quantized tensor; a
    quantized y without parameters takes those of a floating-point x. One parameter counts for the whole tensor; several
    run along axis.
    """
    source, target = _data_type("src_t", src_t), _data_type("dst_t", dst_t)
    if source != x.data_type:
        refuse(f"src_t is {source.name} but x is {x.data_type.name}; make them agree")
    if declared_data_type(declared, target) != target:
        refuse(f"dst_t is {target.name} but the output is declared {declared[0].data_type.name}; make them agree")
    if target not in FLOATS | QUANTIZED_TYPES.keys():
        refuse(f"dst_t is {target.name}; use FLOAT16, FLOAT32 or FLOAT64, or INT8 or UINT8")
    if source in FLOATS and target in FLOATS:
        refuse(f"both src_t {source.name} and dst_t {target.name} are floating-point; use CAST")
    y = TensorSpec(target, x.shape, x.format, _output_params(x.spec, target, declared))
    cast_scalings(x.spec, y, axis)
    return y


@operator(NodeType.QUANT_DTYPE_CAST, sees_quantization=True)
def quant_dtype_cast_of_whole_tensor(
    x: Converted, *, src_t: int, dst_t: int, declared: tuple[TensorSpec, ...]
) -> TensorSpec:
    """q and r as in QUANT_DTYPE_CAST_V2, with one parameter for the whole tensor."""
    y = quant_dtype_cast(x, src_t=src_t, dst_t=dst_t, declared=declared)
    for name, spec in (("x", x.spec), ("the output", y)):
        if spec.is_quantized and len(spec.quant) > 1:
            refuse(f"{name} has {len(spec.quant)} quantization parameters; use 1, or QUANT_DTYPE_CAST_V2 with an axis")
    return y


def cast_scalings(x: TensorSpec, y: TensorSpec, axis: int) -> tuple[Scaling | None, Scaling | None]:
    """Return the scalings by which x is read and y is written; None for real numbers."""
    return _scaling("x", x, axis), _scaling("the output", y, axis)


def _scaling(name: str, spec: TensorSpec, axis: int) -> Scaling | None:
    if spec.data_type in FLOATS:
        return None
    if not spec.quant:
        refuse(f"{name} {spec} has no quantization parameters, so what it stands for is not known; give it some")
    return scaling_of(name, spec, normalized_axis(axis, spec.rank) if len(spec.quant) > 1 else 0)


def _output_params(x: TensorSpec, target: DataType, declared: Sequence[TensorSpec]) -> tuple[QuantParam, ...]:
    if target in FLOATS:
        return ()
    return (declared[0].quant if declared else ()) or (x.quant if x.data_type in FLOATS else ())


def _data_type(name: str, number: int) -> DataType:
    try:
        return data_type_from_number(number)
    except InvalidParameter as error:
        raise error.at(name) from error
