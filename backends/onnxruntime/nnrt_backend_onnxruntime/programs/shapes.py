"""Shapes of a program's tensors, as ONNX's own shape inference knows them.

What the file declares of tensors inside of it and of its outputs is not believed. Elements of constants are not
followed on the way: onnx would make them up, however many there are.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx
from onnx import shape_inference

from nnrt_backend_onnxruntime.programs.skeleton import all_graphs, place_of, quoted
from nnrt_backend_onnxruntime.programs.tensors import size_of
from nnrt_hdi.errors import InvalidFile

# A dimension: its length, or the name of one that an input decides, or nothing.
Dim = int | str | None


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


def inferred(model: onnx.ModelProto) -> onnx.GraphProto:
    """A copy of the graph, with the types of its tensors. Raises InvalidFile."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for graph in all_graphs(bare.graph):
        _require_sorted(graph)
        del graph.value_info[:]
        for entry in graph.output:
            if entry.type.HasField("tensor_type"):
                entry.type.tensor_type.ClearField("shape")
    try:
        return shape_inference.infer_shapes(bare).graph
    except Exception as error:  # Of several kinds, none of which says more.
        raise InvalidFile(f"its shapes can't be inferred: {quoted(str(error))}") from error


def sized(entries: Iterable[onnx.ValueInfoProto]) -> Iterator[Sized]:
    """The entries that are tensors of a known rank."""
    for entry in entries:
        if (found := sized_as(entry.name, entry.type)) is not None:
            yield found


def sized_as(name: str, kind: onnx.TypeProto) -> Sized | None:
    """The tensor of a type, None where that is none of a known rank."""
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    return Sized(name, kind.tensor_type.elem_type, tuple(map(_dim, kind.tensor_type.shape.dim)))


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return dim.dim_param or None


def _require_sorted(graph: onnx.GraphProto) -> None:
    """Refuse nodes in another order than ONNX asks for: one that stands before what it depends on."""
    made = {entry.name for entry in graph.input} | {tensor.name for tensor in graph.initializer}
    made.update(sparse.values.name for sparse in graph.sparse_initializer)
    later = {name for node in graph.node for name in node.output}
    for node in graph.node:
        early = [name for name in node.input if name and name in later and name not in made]
        if early:
            raise InvalidFile(
                f"{quoted(early[0])} is used before it is made; sort the nodes, as ONNX asks for", place=place_of(node)
            )
        made.update(node.output)
