"""Inputs and outputs of a model, in the protocol's terms."""

from collections.abc import Iterable
from dataclasses import dataclass

from nnrt_client.model_session.model_session import ModelSession
from nnrt_client.serving.datatypes import BYTES, datatype_of
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.packed_values import ValueType
from nnrt_hdi.tensor import UNKNOWN_DIM, Shape


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Input or output of a model. -1 is a dimension that a request chooses."""

    name: str
    datatype: str
    shape: Shape


def described(session: ModelSession, descs: Iterable[TensorDesc]) -> tuple[TensorInfo, ...]:
    """Return what the inputs or the outputs of a session are for clients of the protocol."""
    values = session.values
    return tuple(_described(desc, values.get(desc.name)) for desc in descs)


def _described(desc: TensorDesc, value: ValueType | None) -> TensorInfo:
    """Describe one; `value` is its type if it is no tensor of numbers.

    Sequences, maps and strings of unknown rank have one dimension.
    """
    if value is not None:
        return TensorInfo(desc.name, BYTES, (UNKNOWN_DIM,) if value.shape is None else value.shape)
    return TensorInfo(desc.name, datatype_of(desc.data_type), desc.shape or ())
