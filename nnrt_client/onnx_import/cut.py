"""Division of ONNX graphs into parts, each a model of its own."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from nnrt_client.onnx_import.context import Context
from nnrt_client.onnx_import.declared import Dimension
from nnrt_client.onnx_import.file import OnnxFile, declared_dimension, known_dtype
from nnrt_client.onnx_import.scope import captured_names, needed_nodes
from nnrt_hdi.errors import InvalidFile, Unsupported
from nnrt_hdi.tensor import UNKNOWN_DIM, TensorSpec, data_type_of

# Shape inference reads the elements of initializers up to this size.
_SHAPE_BYTES = 4096
# Largest message that protobuf serializes, in bytes.
_LARGEST_PART = 2**31 - 1
# Operators whose results differ between runs, so they are never constants.
_RANDOM = frozenset(
    ["Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"]
)


@dataclass(frozen=True, slots=True)
class PartGraph:
    """Part of a graph, with the fields of a GraphProto but no copy of the weights."""

    name: str
    node: Sequence[NodeProto]
    input: Sequence[ValueInfoProto]
    output: Sequence[ValueInfoProto]
    initializer: Sequence[TensorProto]
    sparse_initializer: Sequence[Any]
    value_info: Sequence[ValueInfoProto]


@dataclass(frozen=True, slots=True)
class PartProto:
    """Part of a model, with the fields of a ModelProto."""

    graph: PartGraph
    opset_import: Sequence[Any]
    functions: Sequence[FunctionProto]
    ir_version: int

    def serialized(self, file: OnnxFile) -> bytes:
        """Return the bytes of an ONNX file without external data. Raise Unsupported beyond 2 GiB."""
        graph = GraphProto(
            name=self.graph.name,
            node=self.graph.node,
            input=self.graph.input,
            output=self.graph.output,
            initializer=[file.with_raw_data(tensor) for tensor in self.graph.initializer],
            sparse_initializer=self.graph.sparse_initializer,
        )
        _inline_external_data(file, graph.node)
        model = ModelProto(
            ir_version=max(self.ir_version, 4), opset_import=self.opset_import, functions=self.functions, graph=graph
        )
        if model.ByteSize() > _LARGEST_PART:
            raise Unsupported("the part that is left for the client has more than 2 GiB")
        return bytes(model.SerializeToString())


@dataclass(frozen=True, slots=True)
class Node:
    """Node of a graph, with the names of the values that it, its branches and its loop bodies read and write."""

    proto: NodeProto = field(repr=False)
    reads: frozenset[str]
    writes: tuple[str, ...]

    @property
    def type(self) -> str:
        """Operator, with its domain unless that is ONNX's."""
        domain = self.proto.domain
        return str(self.proto.op_type if domain in ("", "ai.onnx") else f"{domain}.{self.proto.op_type}")

    @property
    def name(self) -> str:
        return str(self.proto.name or self.writes[0])


class OnnxGraph:
    """Graph to divide into parts: the nodes of a file in topological order, and the types of their values."""

    def __init__(self, file: OnnxFile, shapes: Mapping[str, Sequence[int]]) -> None:
        """Sort the nodes, and infer the types of the values.

        Args:
            file: the file.
            shapes: shapes of inputs by name.

        Raises:
            InvalidParameter: `shapes` don't fit the inputs.
            InvalidFile: a node reads a value that no node before it writes.
        """
        self.file = file
        graph = file.proto.graph
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {sparse.values.name: sparse for sparse in graph.sparse_initializer}
        given = [info for info in graph.input if info.name not in self._initializers]
        Context(file, shapes).check_inputs(given)
        self.inputs = [_fix_shape(info, shapes.get(info.name)) for info in given]
        self.outputs = [str(info.name) for info in graph.output]
        self._types = self._infer_types(shapes)
        known = {*self._initializers, *self._sparse, *(info.name for info in self.inputs)}
        self.nodes: list[Node] = []
        self.writer: dict[str, int] = {}
        for proto in needed_nodes(graph.node, self.outputs):
            # A branch itself makes the values with other names.
            inner = {name for name in captured_names(proto) if name in known}
            reads = frozenset(name for name in proto.input if name).union(inner)
            if unknown := reads - known:
                raise InvalidFile(f"{proto.op_type} node {proto.name!r} reads {min(unknown)!r}, which no node writes")
            writes = tuple(filter(None, proto.output))
            self.writer |= dict.fromkeys(writes, len(self.nodes))
            self.nodes.append(Node(proto, reads, writes))
            known.update(writes)
        if missing := set(self.outputs) - known:
            raise InvalidFile(f"no node writes its output {min(missing)!r}")

    def constants(self, computed: Collection[int]) -> set[int]:
        """Return the indices of nodes whose results are the same in every run. Nodes in `computed` count as varying."""
        found: set[int] = set()
        for at, node in enumerate(self.nodes):
            varies = {name for name in node.reads if not self.is_weight(name) and self.writer.get(name) not in found}
            if at not in computed and not varies and node.proto.op_type not in _RANDOM and _is_plain(node.proto):
                found.add(at)
        return found

    def is_input(self, name: str) -> bool:
        return name not in self.writer and not self.is_weight(name)

    def is_weight(self, name: str) -> bool:
        return name in self._initializers or name in self._sparse

    def spec(self, name: str) -> TensorSpec | None:
        """Return the type of a value, or None if it is no tensor of NNRt or its rank isn't known."""
        dims = self.dims(name)
        if dims is None:
            return None
        dtype = known_dtype(self._types[name].tensor_type.elem_type)
        if dtype is None:
            return None
        shape = tuple(dim if isinstance(dim, int) else UNKNOWN_DIM for dim in dims)
        return TensorSpec(data_type_of(dtype), shape, name=name)

    def kind(self, name: str) -> str:
        """Return data type and shape of a value as text, or "?" if they are not known."""
        spec = self.spec(name)
        return "?" if spec is None else str(spec)

    def dims(self, name: str) -> tuple[Dimension, ...] | None:
        """Return the dimensions of a value, or None if it is no tensor or its rank isn't known."""
        type_ = self._types.get(name)
        if type_ is None or not type_.HasField("tensor_type") or not type_.tensor_type.HasField("shape"):
            return None
        return tuple(map(declared_dimension, type_.tensor_type.shape.dim))

    def is_integer(self, name: str) -> bool:
        """Return whether a value is known to have integer or boolean elements, as in shape arithmetic."""
        type_ = self._types.get(name)
        return type_ is not None and type_.tensor_type.elem_type in _INTEGERS

    def part(self, nodes: Iterable[int], outputs: Sequence[str], constants: Collection[int]) -> PartProto:
        """Return a model of some nodes and the constant nodes that they need. Other values that they read are inputs.

        Args:
            nodes: indices of the nodes.
            outputs: names of the values that the part computes.
            constants: indices of nodes that are added where the part reads them.
        """
        infos = {info.name: info for info in self.inputs}
        chosen = {*nodes, *(self.writer[name] for name in outputs if name in self.writer)}
        reads: set[str] = set()
        weights = {name: None for name in outputs if self.is_weight(name)}
        seen: set[str] = set()
        pending = list(chosen)
        while pending:
            for name in sorted(self.nodes[pending.pop()].reads - seen):
                seen.add(name)
                at = self.writer.get(name)
                if self.is_weight(name):
                    weights[name] = None
                elif at is None or (at not in chosen and at not in constants):
                    reads.add(name)
                elif at not in chosen:
                    chosen.add(at)
                    pending.append(at)
        order = {name: at for at, name in enumerate([*infos, *self.writer])}
        inner = {name for at in chosen for name in self.nodes[at].writes}
        proto = self.file.proto
        graph = PartGraph(
            name=proto.graph.name or "ONNX model",
            node=[self.nodes[at].proto for at in sorted(chosen)],
            input=[infos.get(name) or self._info(name) for name in sorted(reads, key=order.__getitem__)],
            output=[self._info(name) for name in outputs],
            initializer=[self._initializers[name] for name in weights if name in self._initializers],
            sparse_initializer=[self._sparse[name] for name in weights if name in self._sparse],
            value_info=[self._info(name) for name in inner if name in self._types],
        )
        return PartProto(graph, proto.opset_import, proto.functions, proto.ir_version)

    def _info(self, name: str) -> ValueInfoProto:
        return ValueInfoProto(name=name, type=self._types.get(name))

    @property
    def untyped_values(self) -> list[str]:
        """Values whose types onnx can't infer, because they depend on operators of other domains."""
        return [name for name in self.writer if not self._types.get(name, _NOTHING).WhichOneof("value")]

    def serialize_for_inference(self, outputs: Sequence[str]) -> bytes:
        """Return an ONNX file that computes these values, with the large weights as inputs.

        The caller passes it to ONNX Runtime, which infers the types.
        """
        proto = self.file.proto
        weights = self._initializers.values()
        graph = GraphProto(
            name="graph",
            node=proto.graph.node,
            input=[*self.inputs, *(self._info(tensor.name) for tensor in weights if not _is_small(tensor))],
            output=[ValueInfoProto(name=name) for name in outputs],
            initializer=[tensor for tensor in weights if _is_small(tensor)],
            sparse_initializer=proto.graph.sparse_initializer,
        )
        model = ModelProto(
            ir_version=max(proto.ir_version, 4), opset_import=proto.opset_import, functions=proto.functions, graph=graph
        )
        return bytes(model.SerializeToString())

    def set_type(self, name: str, dtype: np.dtype[np.generic], dims: Sequence[Dimension] | None) -> None:
        """Set the data type and the dimensions of a tensor that onnx could not infer."""
        self._types[name] = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(dtype), dims)

    def _infer_types(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, TypeProto]:
        """Infer the types of values by onnx, from the declared types and `shapes`."""
        proto = self.file.proto
        # The file's `value_info` may be valid only for the shapes that the model was exported with.
        declared = [] if shapes else list(proto.graph.value_info)
        graph = GraphProto(
            name="graph",
            node=proto.graph.node,
            input=self.inputs,
            output=proto.graph.output,
            initializer=[_without_elements(tensor) for tensor in proto.graph.initializer],
            value_info=declared,
        )
        model = ModelProto(
            ir_version=max(proto.ir_version, 4), opset_import=proto.opset_import, functions=proto.functions, graph=graph
        )
        # If inference fails, the types that the file declares remain.
        with suppress(onnx.shape_inference.InferenceError, RuntimeError, ValueError):
            graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        return {info.name: info.type for info in (*graph.value_info, *graph.output, *graph.input)} | {
            tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            for tensor in proto.graph.initializer
        }


_NOTHING = TypeProto()
_INTEGERS = frozenset(
    [
        TensorProto.BOOL,
        *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
        *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
    ]
)


def _fix_shape(info: ValueInfoProto, shape: Sequence[int] | None) -> ValueInfoProto:
    """Return an input with the dimensions that `shape` fixes."""
    if shape is None:
        return info
    fixed = ValueInfoProto()
    fixed.CopyFrom(info)
    tensor = fixed.type.tensor_type
    declared = [*map(declared_dimension, tensor.shape.dim)] or [None] * len(shape)
    dims = [dim if size == UNKNOWN_DIM else size for dim, size in zip(declared, shape, strict=True)]
    fixed.type.CopyFrom(helper.make_tensor_type_proto(tensor.elem_type, dims))
    return fixed


def _without_elements(tensor: TensorProto) -> TensorProto:
    """Return a weight without its elements, unless it is small enough to be a shape."""
    if _is_small(tensor):
        return tensor
    return TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)


def _inline_external_data(file: OnnxFile, nodes: Iterable[NodeProto]) -> None:
    """Read external data into the attributes of nodes, of their branches and of their loop bodies."""
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        if attribute.HasField("t"):
            attribute.t.CopyFrom(file.with_raw_data(attribute.t))
        for graph in (attribute.g, *attribute.graphs):
            for tensor in graph.initializer:
                tensor.CopyFrom(file.with_raw_data(tensor))
            _inline_external_data(file, graph.node)


def _is_small(tensor: TensorProto) -> bool:
    return bool(tensor.data_location != TensorProto.EXTERNAL and tensor.ByteSize() <= _SHAPE_BYTES)


def _is_plain(node: NodeProto) -> bool:
    """Return whether a node is an operator of ONNX that reads no names in branches or loop bodies."""
    return node.domain in ("", "ai.onnx") and not any(True for _ in captured_names(node))
