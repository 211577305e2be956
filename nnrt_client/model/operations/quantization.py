"""Conversion between real and quantized tensors."""

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.model.operations.operation import Call, operation
from nnrt_client.model.operations.parameter import integer
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.graph import AttrValue
from nnrt_hdi.tensor import data_type_from_number


def _convert_data_types(call: Call) -> dict[str, AttrValue]:
    """Convert the data types to the numbers of the device interface."""
    attrs: dict[str, AttrValue] = {}
    for attr in ("src_t", "dst_t"):
        try:
            attrs[attr] = data_type_from_number(call.integer(attr, 0))
        except NnrtError as error:
            raise error.at(f"parameter {attr}") from error
    return attrs


OPERATIONS = (
    operation(
        OperationType.QUANT_DTYPE_CAST,
        NodeType.QUANT_DTYPE_CAST_V2,
        integer("src_t", TensorType.QUANT_DTYPE_CAST_SRC_T, required=True),
        integer("dst_t", TensorType.QUANT_DTYPE_CAST_DST_T, required=True),
        integer("axis", TensorType.QUANT_DTYPE_CAST_AXIS),
        derive=_convert_data_types,
        node_name="QuantDTypeCast",
        sets_quant_type=False,
    ),
)
