"""Functions of one operand, element by element."""

from nnrt_client.enums import DataType, OperationType, TensorType
from nnrt_client.model.operations.operation import Call, operation, refuse
from nnrt_client.model.operations.parameter import number
from nnrt_hdi.enums import NodeType
from nnrt_hdi.graph import AttrValue


def _cast(call: Call) -> dict[str, AttrValue]:
    """Check the second input, the data type to cast to.

    It needs no conversion, because devices take the application interface's number of a data type here.
    """
    spec, data = call.inputs[1].spec, call.inputs[1].data
    if data is None:
        refuse(f"type {spec} must be a constant; give it data before the operation is added")
    if data.size != 1:
        refuse(f"type {spec} has {data.size} elements; give one data type")
    number = int(data.reshape(())[()])
    if number not in DataType.__members__.values() or number == DataType.UNKNOWN:
        refuse(f"type is {number}, which names no data type; use 1 (BOOL) to 12 (FLOAT64)")
    return {}


# Their nodes have the same names.
_PLAIN = (
    OperationType.SQUARE,
    OperationType.ERF,
    OperationType.LOG,
    OperationType.SIN,
    OperationType.COS,
    OperationType.CEIL,
    OperationType.FLOOR,
    OperationType.ROUND,
    OperationType.NEG,
    OperationType.RECIPROCAL,
)

OPERATIONS = (
    operation(OperationType.CAST, NodeType.CAST, inputs=2, derive=_cast),
    operation(OperationType.SQRT, NodeType.SQRT),
    operation(OperationType.RSQRT, NodeType.RSQRT),
    *(operation(type_, NodeType[type_.name], sets_quant_type=False) for type_ in _PLAIN),
    operation(
        OperationType.EXP,
        NodeType.EXPFUSION,
        number("base", TensorType.EXP_BASE),
        number("scale", TensorType.EXP_SCALE),
        number("shift", TensorType.EXP_SHIFT),
        sets_quant_type=False,
    ),
    operation(
        OperationType.CLIP,
        NodeType.CLIP,
        number("max", TensorType.CLIP_MAX),
        number("min", TensorType.CLIP_MIN),
        sets_quant_type=False,
    ),
)
