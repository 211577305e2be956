"""What an ONNX file says of itself, whether it can be imported or not."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnx import NodeProto, ValueInfoProto

from nnrt_client.onnx_import.file import Dimension, OnnxFile, Source, declared_dimension, known_dtype, type_name
from nnrt_hdi.tensor import data_type_of


@dataclass(frozen=True, slots=True)
class DeclaredTensor:
    """An input or output as the file has it: a dimension is a number, a name, or None; without `dims` of any rank."""

    name: str
    type: str
    dims: tuple[Dimension, ...] | None

    @property
    def is_fixed(self) -> bool:
        """All dimensions are numbers."""
        return self.dims is not None and all(isinstance(dim, int) for dim in self.dims)


@dataclass(frozen=True, slots=True)
class Contents:
    """What an ONNX file says of itself. `operators` counts those of functions, branches and loops too."""

    producer: str
    opsets: Mapping[str, int]
    inputs: Sequence[DeclaredTensor]
    outputs: Sequence[DeclaredTensor]
    operators: Mapping[str, int]
    metadata: Mapping[str, str]


def contents(source: Source) -> Contents:
    """What an ONNX file says of itself. Raises InvalidPath and InvalidFile."""
    file = OnnxFile(source)
    proto, graph = file.proto, file.proto.graph
    constants = {tensor.name for tensor in graph.initializer}
    functions = (node for function in proto.functions for node in function.node)
    operators = Counter(_operator(node) for nodes in (graph.node, functions) for node in _with_inner(nodes))
    return Contents(
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
        opsets={entry.domain or "ai.onnx": entry.version for entry in proto.opset_import},
        inputs=[_declared(info) for info in graph.input if info.name not in constants],
        outputs=[_declared(info) for info in graph.output],
        operators=dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        metadata={entry.key: entry.value for entry in proto.metadata_props},
    )


def _operator(node: NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def _with_inner(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, with those of their branches and bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _with_inner(graph.node)


def _declared(info: ValueInfoProto) -> DeclaredTensor:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return DeclaredTensor(info.name, (kind or "unknown").removesuffix("_type").upper(), None)
    type_ = info.type.tensor_type
    dims = tuple(map(declared_dimension, type_.shape.dim)) if type_.HasField("shape") else None
    dtype = known_dtype(type_.elem_type)
    return DeclaredTensor(info.name, type_name(type_.elem_type) if dtype is None else data_type_of(dtype).name, dims)
