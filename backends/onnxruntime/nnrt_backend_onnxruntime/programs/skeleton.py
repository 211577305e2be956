"""Model without its large tensors, as a client sent it: parsing, and refusal of models that do more than compute."""

import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, inliner

from nnrt_backend_onnxruntime.programs.operators import RUNTIME_DOMAIN, is_allowed
from nnrt_hdi.errors import InvalidFile, Unsupported

MOST_SKELETON_BYTES = 1 << 25
# Nodes of functions count once per call.
MOST_NODES = 200_000
# The most bytes of the model with its functions inlined.
MOST_INLINED_BYTES = 1 << 27
# The deepest nesting of graphs, and of function calls.
MOST_DEPTH = 16

# The field of each type of attribute, and the other fields that an attribute may have.
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
# The types of a Constant's attributes. ONNX Runtime reads the attributes before it checks their types.
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
    """Cost of nodes after functions are inlined."""

    nodes: int = 0
    size_bytes: int = 0
    # Inputs, outputs and attributes, each of which may be replaced by a name or an attribute of a function's call.
    places: int = 0


_short = reprlib.Repr()
_short.maxstring = 200


def parse_model(data: memoryview) -> onnx.ModelProto:
    """Parse a model. Raises InvalidFile if the bytes aren't one."""
    if data.nbytes > MOST_SKELETON_BYTES:
        raise InvalidFile(
            f"without its large tensors it has {data.nbytes} bytes; at most {MOST_SKELETON_BYTES} are allowed"
        )
    model = onnx.ModelProto()
    try:
        model.ParseFromString(bytes(data))
    except DecodeError as error:
        raise InvalidFile("it is no ONNX model, or damaged") from error
    # ONNX Runtime sees only what was checked; another parser may find more in the bytes.
    model.DiscardUnknownFields()
    # ONNX Runtime may read its configuration from there.
    del model.metadata_props[:]
    if model.training_info:
        raise InvalidFile("it has training information; export it for inference")
    return model


def require_sound(model: onnx.ModelProto) -> None:
    """Refuse a model that is excessively large, or has operators that do more than compute.

    Raises:
        Unsupported: An operator is not allowed.
        InvalidFile: Anything else is wrong.
    """
    functions = _functions(model)
    costs: dict[FunctionKey, _Cost] = {}
    _count(model.graph.node, functions, costs, ())
    for key in functions:  # Also those that are never called.
        _counted(key, functions, costs, ())
    for nodes in (model.graph.node, *(function.node for function in functions.values())):
        for node in all_nodes(nodes):
            if _key(node) not in functions and not is_allowed(node):
                raise Unsupported(_refusal_reason(node), place=place_of(node))
            for attribute in node.attribute:
                require_typed(node, attribute)


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its functions inlined. Raises InvalidFile if that fails."""
    if not model.functions:
        return model
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # onnx raises errors of many classes.
        raise InvalidFile(f"its functions can't be put in their places: {quoted(str(error))}") from error


def all_nodes(nodes: Iterable[onnx.NodeProto], depth: int = 0) -> Iterator[onnx.NodeProto]:
    """Yield nodes and, recursively, the nodes of their inner graphs."""
    for node in nodes:
        yield node
        for graph in graphs_of(node):
            if depth == MOST_DEPTH:
                raise InvalidFile(f"there are more than {MOST_DEPTH} graphs in each other", place=place_of(node))
            yield from all_nodes(graph.node, depth + 1)


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and, recursively, its inner graphs."""
    yield graph
    for node in graph.node:
        for inner in graphs_of(node):
            yield from all_graphs(inner)


def graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that are attributes of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def place_of(node: onnx.NodeProto) -> str:
    """Return the name of a node, for messages."""
    return f"{quoted(node.op_type)[1:-1]} node {quoted(node.name or ', '.join(node.output[:8]))}"


def quoted(text: str) -> str:
    """Return foreign text for messages: quoted, on one line, shortened."""
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
    """Return the cost of nodes, including the functions that they call."""
    total = _Cost()
    for node in nodes:
        total.size_bytes += node.ByteSize()  # Includes the node's inner graphs.
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
    """Refuse an attribute whose content doesn't match its declared type, which ONNX Runtime would trust."""
    field = _FIELDS.get(attribute.type)
    set_fields = {found.name for found, _ in attribute.ListFields()} - _ABOUT
    wanted = _CONSTANTS.get(attribute.name, attribute.type) if node.op_type == "Constant" else attribute.type
    is_empty = field in _MESSAGES and not set_fields and not attribute.ref_attr_name
    if field is None or not set_fields <= {field} or is_empty or wanted != attribute.type:
        raise InvalidFile(
            f"its attribute {quoted(attribute.name)} is not of the type that it says", place=place_of(node)
        )


def _refusal_reason(node: onnx.NodeProto) -> str:
    name = quoted(f"{node.domain}.{node.op_type}")
    if node.domain == RUNTIME_DOMAIN:
        return f"the operator {name} is not among those that clients may send; export the model without it"
    return (
        f"the operator {name} comes from a library that this daemon doesn't have; export the model with operators of"
        f" ONNX or of {RUNTIME_DOMAIN}"
    )
