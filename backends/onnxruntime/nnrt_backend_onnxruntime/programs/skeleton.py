"""A model without its large tensors, as it came from a client: read, and refused unless it only computes."""

import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, inliner

from nnrt_backend_onnxruntime.programs.operators import RUNTIME_DOMAIN, is_allowed
from nnrt_hdi.errors import InvalidFile, Unsupported

MOST_SKELETON_BYTES = 1 << 25
# Functions count as often as they are called.
MOST_NODES = 200_000
# Of the model with functions in the places of their calls.
MOST_INLINED_BYTES = 1 << 27
# Of graphs in graphs, and of functions that call functions.
MOST_DEPTH = 16

# Where an attribute of each type is, and what there is of it besides.
_FIELDS: dict[int, str] = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.TYPE_PROTO: "tp",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSORS: "tensors",
    AttributeProto.GRAPHS: "graphs",
    AttributeProto.SPARSE_TENSORS: "sparse_tensors",
    AttributeProto.TYPE_PROTOS: "type_protos",
}
_MESSAGES = ("t", "g", "sparse_tensor", "tp")
_ABOUT = {"name", "doc_string", "type", "ref_attr_name"}
# Of a Constant, which ONNX Runtime takes for a tensor before it checks that it is one.
_CONSTANTS: dict[str, int] = {
    "value": AttributeProto.TENSOR,
    "sparse_value": AttributeProto.SPARSE_TENSOR,
    "value_float": AttributeProto.FLOAT,
    "value_floats": AttributeProto.FLOATS,
    "value_int": AttributeProto.INT,
    "value_ints": AttributeProto.INTS,
    "value_string": AttributeProto.STRING,
    "value_strings": AttributeProto.STRINGS,
}

FunctionKey = tuple[str, str, str]


@dataclass(slots=True)
class _Cost:
    """Counts what nodes come to when functions are put in the places of their calls."""

    nodes: int = 0
    size_bytes: int = 0
    # Places for what a call gives its function: names, and attributes.
    places: int = 0


_short = reprlib.Repr()
_short.maxstring = 200


def parsed(data: memoryview) -> onnx.ModelProto:
    """Read a model. Raises InvalidFile for what is none."""
    if data.nbytes > MOST_SKELETON_BYTES:
        raise InvalidFile(
            f"without its large tensors it has {data.nbytes} bytes; at most {MOST_SKELETON_BYTES} are allowed"
        )
    model = onnx.ModelProto()
    try:
        model.ParseFromString(bytes(data))
    except DecodeError as error:
        raise InvalidFile("it is no ONNX model, or damaged") from error
    # What was checked, and nothing that another parser might see in the bytes.
    model.DiscardUnknownFields()
    # ONNX Runtime can be told to take its configuration from there.
    del model.metadata_props[:]
    if model.training_info:
        raise InvalidFile("it has training information; export it for inference")
    return model


def require_sound(model: onnx.ModelProto) -> None:
    """Refuse a model with operators that do more than compute, and one that is out of all proportion.

    Raises Unsupported for operators that are not allowed, InvalidFile for all else.
    """
    functions = _functions(model)
    costs: dict[FunctionKey, _Cost] = {}
    _count(model.graph.node, functions, costs, ())
    for key in functions:  # Those that nobody calls, too.
        _counted(key, functions, costs, ())
    for nodes in (model.graph.node, *(function.node for function in functions.values())):
        for node in all_nodes(nodes):
            if _key(node) not in functions and not is_allowed(node):
                raise Unsupported(_why_not(node), place=place_of(node))
            for attribute in node.attribute:
                require_typed(node, attribute)


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without functions, as ONNX Runtime would make it. Raises InvalidFile."""
    if not model.functions:
        return model
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # Of several kinds, none of which says more.
        raise InvalidFile(f"its functions can't be put in their places: {quoted(str(error))}") from error


def all_nodes(nodes: Iterable[onnx.NodeProto], depth: int = 0) -> Iterator[onnx.NodeProto]:
    """Nodes, and those of the graphs in them."""
    for node in nodes:
        yield node
        for graph in graphs_of(node):
            if depth == MOST_DEPTH:
                raise InvalidFile(f"there are more than {MOST_DEPTH} graphs in each other", place=place_of(node))
            yield from all_nodes(graph.node, depth + 1)


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph, and those in it."""
    yield graph
    for node in graph.node:
        for inner in graphs_of(node):
            yield from all_graphs(inner)


def graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Graphs that are attributes of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def place_of(node: onnx.NodeProto) -> str:
    """Name a node, for messages."""
    return f"{quoted(node.op_type)[1:-1]} node {quoted(node.name or ', '.join(node.output[:8]))}"


def quoted(text: str) -> str:
    """Foreign text for messages: in quotes, on one line, and not too long."""
    return _short.repr(text)


def _functions(model: onnx.ModelProto) -> Mapping[FunctionKey, onnx.FunctionProto]:
    functions = {(function.domain, function.name, function.overload): function for function in model.functions}
    if len(functions) != len(model.functions):
        raise InvalidFile("it has two functions of one name")
    return functions


def _key(node: onnx.NodeProto) -> FunctionKey:
    return node.domain, node.op_type, node.overload


def _count(
    nodes: Iterable[onnx.NodeProto],
    functions: Mapping[FunctionKey, onnx.FunctionProto],
    costs: dict[FunctionKey, _Cost],
    callers: tuple[FunctionKey, ...],
) -> _Cost:
    """Count nodes with all that the functions among them consist of."""
    total = _Cost()
    for node in nodes:
        total.size_bytes += node.ByteSize()  # With the graphs in it.
        for inner in all_nodes([node]):
            total.nodes += 1
            total.places += len(inner.input) + len(inner.output) + len(inner.attribute)
            if _key(inner) in functions:
                called = _counted(_key(inner), functions, costs, callers)
                total.nodes += called.nodes
                total.places += called.places
                total.size_bytes += called.size_bytes + called.places * inner.ByteSize()
            if total.nodes > MOST_NODES:
                raise InvalidFile(f"it has more than {MOST_NODES} nodes, those of functions counted for each call")
            if functions and total.size_bytes > MOST_INLINED_BYTES:
                raise InvalidFile(
                    f"with functions in the places of their calls it may have {total.size_bytes} bytes and more; at"
                    f" most {MOST_INLINED_BYTES} are allowed"
                )
    return total


def _counted(
    key: FunctionKey,
    functions: Mapping[FunctionKey, onnx.FunctionProto],
    costs: dict[FunctionKey, _Cost],
    callers: tuple[FunctionKey, ...],
) -> _Cost:
    if key in callers or len(callers) == MOST_DEPTH:
        how = "calls itself" if key in callers else f"is called by {MOST_DEPTH} others in each other"
        raise InvalidFile(f"its function {quoted(key[1])} {how}")
    if key not in costs:
        costs[key] = _count(functions[key].node, functions, costs, (*callers, key))
    return costs[key]


def require_typed(node: onnx.NodeProto, attribute: AttributeProto) -> None:
    """Refuse an attribute that holds something else than it says, which ONNX Runtime would believe."""
    field = _FIELDS.get(attribute.type)
    held = {found.name for found, _ in attribute.ListFields()} - _ABOUT
    wanted = _CONSTANTS.get(attribute.name, attribute.type) if node.op_type == "Constant" else attribute.type
    is_empty = field in _MESSAGES and not held and not attribute.ref_attr_name
    if field is None or not held <= {field} or is_empty or wanted != attribute.type:
        raise InvalidFile(
            f"its attribute {quoted(attribute.name)} is not of the type that it says", place=place_of(node)
        )


def _why_not(node: onnx.NodeProto) -> str:
    name = quoted(f"{node.domain}.{node.op_type}")
    if node.domain == RUNTIME_DOMAIN:
        return f"the operator {name} is not among those that clients may send; export the model without it"
    return (
        f"the operator {name} comes from a library that this daemon doesn't have; export the model with operators of"
        f" ONNX or of {RUNTIME_DOMAIN}"
    )
