"""Declarations of an ONNX file, as values that need no package onnx."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

# A dimension: a number, a name, or None if neither is known.
Dimension = int | str | None


@dataclass(frozen=True, slots=True)
class DeclaredTensor:
    """Input or output as the file declares it."""

    name: str
    # In ONNX Runtime's notation: tensor(float), seq(tensor(int64)).
    type: str
    # NNRt's name of the type (FLOAT32), or ONNX's if NNRt has no such type.
    data_type: str
    # A dimension is a number, a name or None. The shape is None if the rank is unknown, or the type is no tensor.
    shape: tuple[Dimension, ...] | None
    # Denotations of the dimensions, such as DATA_BATCH; empty texts if the file has none.
    denotations: tuple[str, ...] = ()

    @property
    def is_fixed(self) -> bool:
        """True if all dimensions are numbers."""
        return self.shape is not None and all(isinstance(dim, int) for dim in self.shape)

    def with_dims(self, by_name: Mapping[str, int], by_denotation: Mapping[str, int]) -> "DeclaredTensor":
        """Return the tensor with a number for each dimension that has one of these names or denotations."""
        if self.shape is None:
            return self
        named = (by_name.get(dim, dim) if isinstance(dim, str) else dim for dim in self.shape)
        pairs = zip(named, self.denotations, strict=True)
        return replace(
            self, shape=tuple(dim if isinstance(dim, int) else by_denotation.get(d, dim) for dim, d in pairs)
        )


@dataclass(frozen=True, slots=True)
class Header:
    """Contents of an ONNX file without its nodes and weights."""

    inputs: tuple[DeclaredTensor, ...]
    outputs: tuple[DeclaredTensor, ...]
    # Inputs with a default value.
    optional_inputs: tuple[DeclaredTensor, ...]
    producer: str
    domain: str
    description: str
    version: int | None
    graph_name: str
    graph_description: str
    metadata: dict[str, str]
