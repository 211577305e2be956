"""Types and shapes of tensors, inferred by ONNX node by node.

Types that the file declares for inner tensors and outputs are ignored. ONNX infers only nodes that match their
operator's schema: its inference functions are native code and rely on that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import onnx
from onnx import AttributeProto, TensorProto, TypeProto, defs, shape_inference

from nnrt_backend_onnxruntime.programs.tensors import size_of

# A dimension: its length, or a name whose length the inputs determine, or None.
Dim = int | str | None

_OPTIONAL = defs.OpSchema.FormalParameterOption.Optional
_GRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS, AttributeProto.UNDEFINED)


@dataclass(frozen=True, slots=True)
class SizedTensor:
    """Name, data type and dimensions of a tensor whose rank is known."""

    name: str
    data_type: int
    dims: tuple[Dim, ...]

    def size_bytes(self, known: Mapping[str, int]) -> int | None:
        """Return the tensor's size for these lengths of named dimensions, or None if it depends on others."""
        count = 1
        for dim in self.dims:
            length = known.get(dim) if isinstance(dim, str) else dim
            if length is None:
                return None
            count *= length
        return size_of(self.data_type, count)


def sized_tensor(name: str, kind: TypeProto) -> SizedTensor | None:
    """Return a tensor of this type, or None if the type is no tensor or its rank is unknown."""
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    return SizedTensor(name, kind.tensor_type.elem_type, tuple(map(_dim, kind.tensor_type.shape.dim)))


class Inference:
    """Inference of the types of nodes' outputs, by ONNX."""

    def __init__(self, opsets: Sequence[onnx.OperatorSetIdProto]) -> None:
        self._opsets = list(opsets)
        self._versions = {_domain(entry.domain): entry.version for entry in opsets}

    def outputs_of(
        self, node: onnx.NodeProto, types: Mapping[str, TypeProto], elements: Mapping[str, TensorProto]
    ) -> Mapping[str, TypeProto]:
        """Return the types of a node's outputs, as far as they follow from the types and elements of its inputs."""
        domain = _domain(node.domain)
        signature = _signature(node.op_type, self._versions.get(domain, 0), domain)
        given = [name for name in node.input if name]
        if signature is None or not signature.matches(node) or any(name not in types for name in given):
            return {}
        try:
            found = shape_inference.infer_node_outputs(
                signature.schema,
                node,
                {name: types[name] for name in given},
                {name: elements[name] for name in given if name in elements},
                opset_imports=self._opsets,
            )
        except Exception:  # onnx raises errors of many classes; the types stay unknown.
            return {}
        return {name: kind for name, kind in found.items() if kind.WhichOneof("value")}


@dataclass(frozen=True, slots=True)
class _Signature:
    """Copy of a schema's properties, made once: each access to a property of the schema makes a new copy."""

    schema: defs.OpSchema
    inputs: range
    most_outputs: int
    # For each input. The last input may be repeated.
    may_be_left_out: Sequence[bool]
    attributes: Mapping[str, int]
    required: frozenset[str]

    def matches(self, node: onnx.NodeProto) -> bool:
        """Return whether a node's inputs, outputs and attributes match the schema, and it has no inner graphs."""
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
    except Exception:  # onnx doesn't export the class.
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
