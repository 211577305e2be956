"""Implementation of `Model.apply`, which adds an operation together with its constants, parameters and outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from numpy.typing import ArrayLike

from nnrt_client.model.operations import Operation
from nnrt_client.model.operations.record import OperationRecord, TensorRecord, infer_outputs
from nnrt_client.model.operations.values import is_empty, is_logical, read_operand
from nnrt_client.model.parts import ModelParts
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class Elements:
    """Operand given by its elements, which become a constant of the model."""

    given: ArrayLike


def apply(
    parts: ModelParts,
    declared: Operation,
    operands: Sequence[int | Elements],
    wanted: Sequence[int | TensorDesc],
    quant: QuantParam | Sequence[QuantParam | None] | None,
    name: str,
    parameters: Mapping[str, object],
) -> tuple[int, ...]:
    """Append an operation for `Model.apply`, and return the indices of its outputs.

    An error leaves the model as it was.
    """
    parts.require_open()
    tensors, operations = len(parts.tensors), len(parts.operations)
    try:
        return _apply(parts, declared, operands, wanted, quant, name, parameters)
    except BaseException:
        del parts.tensors[tensors:], parts.operations[operations:]
        raise


def _apply(
    parts: ModelParts,
    declared: Operation,
    operands: Sequence[int | Elements],
    wanted: Sequence[int | TensorDesc],
    quant: QuantParam | Sequence[QuantParam | None] | None,
    name: str,
    parameters: Mapping[str, object],
) -> tuple[int, ...]:
    given = [_add_parameter(parts, declared, *item) for item in parameters.items() if not is_empty(item[1])]
    inputs = _add_operands(parts, declared, operands)
    declared_specs = [
        tensor._to_spec() if isinstance(tensor, TensorDesc) else parts.tensors[tensor].spec for tensor in wanted
    ]
    params = [
        param._to_spec() if param else () for param in ((quant,) if isinstance(quant, QuantParam) else quant or ())
    ]
    if params and not all(isinstance(tensor, TensorDesc) for tensor in wanted):
        raise InvalidParameter("quant is given for a tensor that is there already; use set_tensor_quant_params")
    operand_records = parts.records(inputs)
    attrs = declared.attributes(operand_records, len(wanted) or None, parts.records(given))
    specs = infer_outputs(declared, attrs, operand_records, declared_specs, params, name)
    outputs = [
        _add_output(parts, spec, tensor, name if len(specs) == 1 or not name else f"{name}:{at}")
        if tensor is None or isinstance(tensor, TensorDesc)
        else tensor
        for at, (spec, tensor) in enumerate(zip_longest(specs, wanted))
    ]
    parts.operations.append(OperationRecord(declared, *parts.check_ends(inputs, outputs), attrs, name))
    return tuple(outputs)


def _add_operands(parts: ModelParts, declared: Operation, operands: Sequence[int | Elements]) -> list[int]:
    """Return the indices of the operands, after adding a constant for each that is given by its elements."""
    types = [parts.tensors[operand].spec for operand in operands if isinstance(operand, int)]
    indices = []
    for at, operand in enumerate(operands):
        if isinstance(operand, int):
            indices.append(operand)
            continue
        try:
            data_type = _choose_data_type(types, operand.given)
            indices.append(parts.append_array(read_operand(operand.given, data_type, is_index=declared.is_index(at))))
        except NnrtError as error:
            raise error.at(f"{declared.type.name} operand {at}") from error
    return indices


def _add_parameter(parts: ModelParts, declared: Operation, keyword: str, value: object) -> int:
    parameter = declared.parameter(keyword)
    try:
        return parts.append_array(parameter.encode(value), type=parameter.tensor_types[0])
    except NnrtError as error:
        raise error.at(f"{declared.type.name} {parameter.place}") from error


def _add_output(parts: ModelParts, spec: TensorSpec, declared: TensorDesc | None, name: str) -> int:
    """Add an output with its inferred spec, and return its index.

    An inferred spec may have an input's name, so the name is that of `declared`, or else `name`.
    """
    desc = TensorDesc._from_spec(spec)
    desc.name = (declared.name if declared else "") or name
    return parts.append(TensorRecord(desc, quant=spec.quant, known=spec))


def _choose_data_type(tensors: Sequence[TensorSpec], given: object) -> DataType | None:
    """Return the data type for plain numbers that are operands next to these tensors, or None.

    It is the data type of the first tensor, or FLOAT32 if that tensor is quantized. If not all numbers are truth
    values, BOOL tensors don't count.
    """
    logical = is_logical(given)
    for spec in tensors:
        if logical or spec.data_type is not DataType.BOOL:
            return DataType.FLOAT32 if spec.is_quantized else spec.data_type
    return None
