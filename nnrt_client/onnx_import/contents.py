"""What an ONNX file says of itself, whether it can be imported or not."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, ValueInfoProto, helper

from nnrt_client.onnx_import.file import OnnxFile, Source, type_name
from nnrt_client.onnx_import.problems import Problem
from nnrt_hdi.tensor import NUMPY_DTYPES

# What gives the shape of a tensor, and nothing of its elements.
_SHAPE_OPERATORS = ("Shape", "Size")
# From inputs of these data types numbers are made that a model is steered by.
_STEERING_TYPES = ("INT64", "INT32", "BOOL")
_MOST_STEERING_ELEMENTS = 16

Dims = tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class DeclaredTensor:
    """An input or output as the file has it: a dimension is a number, a name, or None; without `dims` of any rank."""

    name: str
    type: str
    dims: Dims | None

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
    _graph: GraphProto = field(repr=False)

    def steering_inputs(self, problems: Sequence[Problem]) -> list[list[str]]:
        """For each problem the inputs without whose numbers its node can't be imported: a few integers or truth values.

        They are those of which alone something that the node reads is computed.
        """
        inputs = {one.name: one for one in self.inputs}
        made_of = _sources(self._graph, list(inputs))
        found = []
        for problem in problems:
            read = [made_of.get(name, frozenset()) for name in problem.reads]
            steering = [names for names in read if all(_is_steering(inputs[name]) for name in names)]
            found.append(sorted(frozenset[str]().union(*steering)))
        return found


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
        _graph=graph,
    )


def _operator(node: NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def _with_inner(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, with those of their branches and bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _with_inner(attribute.g.node)


def _declared(info: ValueInfoProto) -> DeclaredTensor:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return DeclaredTensor(info.name, (kind or "unknown").removesuffix("_type").upper(), None)
    type_ = info.type.tensor_type
    dims: Dims | None = None
    if type_.HasField("shape"):
        dims = tuple(
            dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or None
            for dim in type_.shape.dim
        )
    dtype = next((kind.name for kind, dtype in NUMPY_DTYPES.items() if _is(dtype, type_.elem_type)), None)
    return DeclaredTensor(info.name, dtype or type_name(type_.elem_type), dims)


def _is(dtype: np.dtype[Any], elem_type: int) -> bool:
    return int(helper.np_dtype_to_tensor_dtype(dtype)) == elem_type


def _is_steering(tensor: DeclaredTensor) -> bool:
    if tensor.type not in _STEERING_TYPES or tensor.dims is None or len(tensor.dims) > 1:
        return False
    return all(isinstance(dim, int) and dim <= _MOST_STEERING_ELEMENTS for dim in tensor.dims)


def _sources(graph: GraphProto, inputs: Sequence[str]) -> dict[str, frozenset[str]]:
    """For each tensor the inputs whose elements it is computed of; shapes say nothing of elements."""
    found = {name: frozenset([name]) for name in inputs}
    for node in graph.node:
        if node.op_type in _SHAPE_OPERATORS:
            continue
        of_node = frozenset[str]().union(*(found.get(name, frozenset()) for name in node.input))
        found |= dict.fromkeys(node.output, of_node)
    return found
