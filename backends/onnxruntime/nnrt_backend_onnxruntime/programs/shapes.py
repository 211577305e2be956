"""Types and shapes of tensors, by ONNX's own inference of one node after the other.

What the file declares of tensors inside of it and of its outputs is not believed. And a node is asked about only when
it is what its operator's schema says: the functions that infer, which are native code, trust in that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import onnx
from onnx import AttributeProto, TensorProto, TypeProto, defs, shape_inference

from nnrt_backend_onnxruntime.programs.tensors import size_of

# A dimension: its length, or the name of one that an input decides, or nothing.
Dim = int | str | None

_OPTIONAL = defs.OpSchema.FormalParameterOption.Optional
_GRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS, AttributeProto.UNDEFINED)


@dataclass(frozen=True, slots=True)
class Sized:
    """A tensor, as far as its shape is known."""

    name: str
    data_type: int
    dims: tuple[Dim, ...]

    def size_bytes(self, known: Mapping[str, int]) -> int | None:
        """Bytes that it has with these dimensions, None where others decide too."""
        count = 1
        for dim in self.dims:
            length = known.get(dim) if isinstance(dim, str) else dim
            if length is None:
                return None
            count *= length
        return size_of(self.data_type, count)


def sized(name: str, kind: TypeProto) -> Sized | None:
    """The tensor of a type, None where that is none of a known rank."""
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    return Sized(name, kind.tensor_type.elem_type, tuple(map(_dim, kind.tensor_type.shape.dim)))


class Inference:
    """Asks ONNX what nodes give."""

    def __init__(self, opsets: Sequence[onnx.OperatorSetIdProto]) -> None:
        self._opsets = list(opsets)
        self._versions = {_domain(entry.domain): entry.version for entry in opsets}

    def outputs_of(
        self, node: onnx.NodeProto, types: Mapping[str, TypeProto], elements: Mapping[str, TensorProto]
    ) -> Mapping[str, TypeProto]:
        """The types of what a node gives, as far as they follow from those of its inputs, and from their elements."""
        domain = _domain(node.domain)
        signature = _signature(node.op_type, self._versions.get(domain, 0), domain)
        given = [name for name in node.input if name]
        if signature is None or not signature.has(node) or any(name not in types for name in given):
            return {}
        try:
            found = shape_inference.infer_node_outputs(
                signature.schema,
                node,
                {name: types[name] for name in given},
                {name: elements[name] for name in given if name in elements},
                opset_imports=self._opsets,
            )
        except Exception:  # Of several kinds: it isn't known then.
            return {}
        return {name: kind for name, kind in found.items() if kind.WhichOneof("value")}


@dataclass(frozen=True, slots=True)
class _Signature:
    """Copies what a schema says once; each property of the schema itself is a copy."""

    schema: defs.OpSchema
    inputs: range
    most_outputs: int
    # Of the last input there may be several.
    may_be_left_out: Sequence[bool]
    attributes: Mapping[str, int]
    required: frozenset[str]

    def has(self, node: onnx.NodeProto) -> bool:
        """Tell if a node has such inputs, outputs and attributes, and no graphs."""
        if len(node.input) not in self.inputs or len(node.output) > self.most_outputs:
            return False
        last = len(self.may_be_left_out) - 1
        if any(not name and not self.may_be_left_out[min(at, last)] for at, name in enumerate(node.input)):
            return False
        given = {attribute.name: attribute.type for attribute in node.attribute}
        return self.required <= given.keys() and all(
            self.attributes.get(name) == kind and kind not in _GRAPHS for name, kind in given.items()
        )


@cache
def _signature(op_type: str, version: int, domain: str) -> _Signature | None:
    try:
        schema = defs.get_schema(op_type, version, domain)
    except Exception:  # One of onnx's own, which it doesn't name.
        return None
    if not schema.has_type_and_shape_inference_function or schema.deprecated:
        return None
    attributes = schema.attributes
    return _Signature(
        schema,
        range(schema.min_input, schema.max_input + 1),
        schema.max_output,
        [parameter.option == _OPTIONAL for parameter in schema.inputs],
        {name: entry.type.value for name, entry in attributes.items()},  # type: ignore[attr-defined]  # pybind11's.
        frozenset(name for name, entry in attributes.items() if entry.required),
    )


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return dim.dim_param or None
