"""Description of a session's model: inputs, outputs and metadata."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnrt_client.onnxruntime.element_types import type_text
from nnrt_hdi.packed_values import value_shape
from nnrt_hdi.tensor import TensorSpec

if TYPE_CHECKING:
    from nnrt_client.onnx_import.declared import DeclaredTensor, Header


# ONNX Runtime's version of a model without one.
_NO_VERSION = 2**63 - 1


@dataclass(frozen=True, slots=True)
class NodeArg:
    """Input or output. Each dimension is a number, a name or None."""

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """Metadata of the model's file."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def make_node_args(
    declared: "tuple[DeclaredTensor, ...]",
    specs: Mapping[str, TensorSpec],
    dims_by_name: Mapping[str, int],
    dims_by_denotation: Mapping[str, int],
) -> list[NodeArg]:
    """Return inputs or outputs as the file declares them, with dimensions from the session options and `specs`.

    `specs` are the inputs or outputs of the compiled model by name.
    """
    return [
        _node_arg(tensor.with_dims(dims_by_name, dims_by_denotation), specs.get(tensor.name)) for tensor in declared
    ]


def make_metadata(header: "Header") -> ModelMetadata:
    """Return the metadata of a file's header."""
    return ModelMetadata(
        producer_name=header.producer,
        graph_name=header.graph_name,
        domain=header.domain,
        description=header.description,
        graph_description=header.graph_description,
        version=_NO_VERSION if header.version is None else header.version,
        custom_metadata_map=dict(header.metadata),
    )


def _node_arg(tensor: "DeclaredTensor", spec: TensorSpec | None) -> NodeArg:
    known = [None if dim < 0 else dim for dim in value_shape(spec)] if spec is not None else []
    dims: list[int | str | None] = [None] * len(known) if tensor.shape is None else list(tensor.shape)
    if len(known) == len(dims):
        dims = [
            dim if isinstance(dim, int) or number is None else number for dim, number in zip(dims, known, strict=True)
        ]
    return NodeArg(tensor.name, tensor.type or (type_text(spec.numpy_dtype) if spec else ""), dims)
