"""Summary of an ONNX file, whether or not it can be imported."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnx import NodeProto

from nnrt_client.onnx_import.declared import DeclaredTensor
from nnrt_client.onnx_import.file import OnnxFile, Source
from nnrt_client.onnx_import.header import declared_tensor


@dataclass(frozen=True, slots=True)
class Contents:
    """Summary of an ONNX file. `operators` also counts the nodes of functions, branches and loops."""

    producer: str
    opsets: Mapping[str, int]
    inputs: Sequence[DeclaredTensor]
    outputs: Sequence[DeclaredTensor]
    operators: Mapping[str, int]
    metadata: Mapping[str, str]


def read_contents(source: Source) -> Contents:
    """Summarize an ONNX file. Raise InvalidPath or InvalidFile if it can't be read."""
    file = OnnxFile(source)
    proto, graph = file.proto, file.proto.graph
    constants = {tensor.name for tensor in graph.initializer}
    functions = (node for function in proto.functions for node in function.node)
    operators = Counter(_operator(node) for nodes in (graph.node, functions) for node in _walk(nodes))
    return Contents(
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
        opsets={entry.domain or "ai.onnx": entry.version for entry in proto.opset_import},
        inputs=[declared_tensor(info) for info in graph.input if info.name not in constants],
        outputs=[declared_tensor(info) for info in graph.output],
        operators=dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        metadata={entry.key: entry.value for entry in proto.metadata_props},
    )


def _operator(node: NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def _walk(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield the nodes and, recursively, the nodes of their branches and loop bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _walk(graph.node)
