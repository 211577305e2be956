"""Values of programs that runs send in packed forms: strings, sequences and maps."""

from collections.abc import Iterable, Mapping
from typing import Any

from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import InvalidParameter, NullPointer, OperationFailed
from nnrt_hdi.packed_values import PackedSpec, ValueType
from nnrt_hdi.tensor import Array, TensorSpec


def packed_values(names: Iterable[str], specs: Iterable[TensorSpec]) -> dict[str, ValueType]:
    """Return the types of the inputs, or of the outputs, that are packed values, by name."""
    return {name: spec.value for name, spec in zip(names, specs, strict=True) if isinstance(spec, PackedSpec)}


def described_specs(descs: Iterable[TensorDesc], values: Mapping[str, ValueType]) -> list[TensorSpec]:
    """Return the specs of a session's inputs, or of its outputs."""
    return [PackedSpec.of(values[one.name], one.name) if one.name in values else one._to_spec() for one in descs]


def pack_input(name: str, value: ValueType, given: Any) -> Any:
    """Return an input of a run as its packed form, or as it is if it is a tensor, which has the packed form already.

    Raises NullPointer for None, and InvalidParameter if the input is not of this type.
    """
    if isinstance(given, RunTensor):
        return given
    place = f"input {name!r}"
    if given is None:
        raise NullPointer(f"it is None; give {value}", place=place)
    try:
        return value.pack(given)
    except InvalidParameter as error:
        raise error.at(place) from error


def unpack_output(name: str, value: ValueType, packed: Array) -> Any:
    """Return an output of a run. Raise OperationFailed if the device gave no packed form of this type."""
    try:
        return value.unpack(packed)
    except InvalidParameter as error:
        raise OperationFailed(error.message, place=f"output {name!r}") from error
