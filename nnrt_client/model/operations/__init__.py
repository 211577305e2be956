"""Operations of the application interface: the operands of each, and the node of the device interface that it becomes.

The module of a family declares its operations, in the language of `nnrt_client.model.operations.operation`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.model.operations.operation import Operation
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.ops import family_modules

__all__ = ["FAMILIES", "OPERATIONS", "Operation", "operation_of"]

FAMILIES: Mapping[str, tuple[Operation, ...]] = MappingProxyType(
    {name: module.OPERATIONS for name, module in family_modules(__name__).items()}
)


def _index_by_type() -> dict[OperationType, Operation]:
    """Return all operations.

    Raises TypeError for a type that is declared twice, and for a TensorType that two operations take.
    """
    operations: dict[OperationType, Operation] = {}
    owner: dict[TensorType, OperationType] = {}
    for family in FAMILIES.values():
        for declared in family:
            if operations.setdefault(declared.type, declared) is not declared:
                raise TypeError(f"{declared.type.name} is declared twice")
            for tensor_type in declared.tensor_types:
                if owner.setdefault(tensor_type, declared.type) is not declared.type:
                    other = owner[tensor_type].name
                    raise TypeError(f"both {other} and {declared.type.name} take {tensor_type.name}")
    return operations


OPERATIONS: Mapping[OperationType, Operation] = MappingProxyType(_index_by_type())


def operation_of(type: int) -> Operation:
    """Return the declaration of an operation type; raise InvalidParameter if there is none."""
    try:
        return OPERATIONS[OperationType(type)]
    except ValueError as error:
        raise InvalidParameter(f"{type!r} is no operation type; use 1 (ADD) to 108 (GATHER_ND)") from error
    except KeyError as error:
        raise InvalidParameter(f"{OperationType(type).name} is an operation this version doesn't offer") from error
