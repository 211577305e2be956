"""Functions of one operand, element by element."""

from nnrt_client.enums import DataType, OperationType
from nnrt_client.operations.operation import Call, operation, refuse
from nnrt_hdi.enums import NodeType
from nnrt_hdi.graph import AttrValue


def _cast(call: Call) -> dict[str, AttrValue]:
    """The second input travels as it is: devices know the numbers of the application interface."""
    spec, data = call.inputs[1].spec, call.inputs[1].data
    if data is None:
        refuse(f"type {spec} must be a constant; give it data before the operation is added")
    if data.size != 1:
        refuse(f"type {spec} has {data.size} elements; give one data type")
    number = int(data.reshape(())[()])
    if number not in DataType.__members__.values() or number == DataType.UNKNOWN:
        refuse(f"type is {number}, which names no data type; use 1 (BOOL) to 12 (FLOAT64)")
    return {}


OPERATIONS = (operation(OperationType.CAST, NodeType.CAST, inputs=2, derive=_cast),)
