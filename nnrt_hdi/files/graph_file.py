"""Graphs as bytes: their digest, and files of a graph with its constants."""

import hashlib
import json
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from typing_extensions import Buffer

from nnrt_hdi.enums import DataType, Format, NodeType, QuantType
from nnrt_hdi.errors import InvalidFile, InvalidParameter, NnrtError
from nnrt_hdi.files.container import packed, unpacked
from nnrt_hdi.graph import (
    MAX_ATTRIBUTE_VALUES,
    AttrValue,
    Constant,
    Graph,
    Node,
    quoted_name,
    require_at_most,
    require_moderate,
)
from nnrt_hdi.ops.inference import operator_of
from nnrt_hdi.packed_values import PackedSpec, ValueType
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import Array, QuantParam, TensorSpec, flat_bytes

KIND = "graph"

# Characters of a wrong manifest that messages quote.
MAX_QUOTED = 200

# Integers as on the wire.
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)

ValueT = TypeVar("ValueT")


def graph_digest(graph: Graph) -> bytes:
    """Return the SHA-256 of a graph, with digests of constants. Only equal graphs have equal digests."""
    text = json.dumps(described_graph(graph), separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).digest()


def packed_graph(graph: Graph) -> list[Buffer]:
    """Return a file of a graph as consecutive pieces, with each constant once.

    Args:
        graph: The graph.

    Returns:
        The pieces; `b"".join` makes the file.

    Raises:
        InvalidParameter: A constant has no data.
    """
    parts = constant_parts(graph)
    return packed(KIND, described_graph(graph), list(parts.values()))


def constant_parts(graph: Graph) -> dict[bytes, Part]:
    """Return the constants of a graph by digest. Raise InvalidParameter if one has no data."""
    parts: dict[bytes, Part] = {}
    for index, constant in graph.constants.items():
        if constant.data is None:
            raise InvalidParameter("its data is not here; give the whole graph", place=graph.tensor_place(index))
        parts.setdefault(constant.sha256, Part(flat_bytes(constant.data), constant.sha256))
    return parts


def unpacked_graph(data: Buffer) -> Graph:
    """Return the graph of a file that `packed_graph` made, with constants as read-only views of `data`.

    Nodes have the attributes of their operators; whether operands fit is not checked here: see `nnrt_hdi.ops`.

    Args:
        data: The file.

    Returns:
        The graph.

    Raises:
        InvalidFile: The data is no file of a graph.
    """
    about, listed = unpacked(KIND, data)
    parts = {part.sha256: part for part in listed}
    if len(parts) < len(listed):
        raise InvalidFile("it holds a part twice")
    return read_graph(about, parts)


def read_graph(described: Any, parts: Mapping[bytes, Part]) -> Graph:
    """Return the graph that `described_graph` wrote, with views of exactly these parts. Raise InvalidFile."""
    try:
        graph = _graph(described, parts)
    except InvalidFile:
        raise
    except NnrtError as error:
        raise InvalidFile(f"it holds no sound graph: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidFile(f"it holds no graph: {type(error).__name__} {str(error)[:MAX_QUOTED]}") from error
    if len({constant.sha256 for constant in graph.constants.values()}) < len(parts):
        raise InvalidFile("it holds parts that are no constant of its graph")
    return graph


def described_spec(spec: TensorSpec) -> dict[str, Any]:
    """Return a tensor spec as JSON."""
    described: dict[str, Any] = {
        "data_type": spec.data_type.name,
        "shape": list(spec.shape),
        "format": spec.format.name,
        "quant": [[float(param.scale), param.zero_point, param.num_bits] for param in spec.quant],
        "name": spec.name,
    }
    if isinstance(spec, PackedSpec):
        shape = spec.value.shape
        described["value"] = {"type": spec.value.name, "shape": None if shape is None else list(shape)}
    return described


def read_end_spec(described: Any) -> TensorSpec:
    """Return the spec of an input or output of a compiled model, maybe a packed value. Raise as `read_spec`."""
    if "value" not in described:
        return read_spec(described)
    value = described["value"]
    shape = None if value["shape"] is None else _integers(value["shape"])
    return PackedSpec.of(ValueType(_text(value["type"]), shape), _text(described["name"]))


def read_spec(described: Any) -> TensorSpec:
    """Return a tensor's spec that `described_spec` wrote. Raise LookupError, TypeError, ValueError or NnrtError."""
    return TensorSpec(
        DataType[described["data_type"]],
        _integers(described["shape"]),
        Format[described["format"]],
        _each(described["quant"], _quant_param),
        _text(described["name"]),
    )


def described_graph(graph: Graph) -> dict[str, Any]:
    """Return a graph as JSON, with constants by digest."""
    return {
        "name": graph.name,
        "tensors": [described_spec(spec) for spec in graph.tensors],
        "nodes": [
            {
                "type": node.type.name,
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
                "attrs": dict(node.attrs),
                "name": node.name,
                "quant_type": node.quant_type.name,
            }
            for node in graph.nodes
        ],
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "constants": [
            [index, constant.sha256.hex(), constant.size_bytes] for index, constant in sorted(graph.constants.items())
        ],
    }


def _graph(described: Any, parts: Mapping[bytes, Part]) -> Graph:
    _require_moderate(described)
    tensors = _each(described["tensors"], read_spec)
    return Graph(
        tensors,
        _each(described["nodes"], _node),
        _integers(described["inputs"]),
        _integers(described["outputs"]),
        {
            _integer(index): _constant(tensors, index, _integer(size), parts[bytes.fromhex(sha256)])
            for index, sha256, size in described["constants"]
        },
        _text(described["name"]),
    )


def _require_moderate(described: Any) -> None:
    nodes, tensors = described["nodes"], described["tensors"]
    references = len(described["inputs"]) + len(described["outputs"])
    references += sum(len(node["inputs"]) + len(node["outputs"]) for node in nodes)
    require_moderate(len(tensors), len(nodes), references, sum(len(tensor["quant"]) for tensor in tensors))


def _node(described: Any) -> Node:
    node = Node(
        NodeType[described["type"]],
        _integers(described["inputs"]),
        _integers(described["outputs"]),
        {name: _attr(value) for name, value in described["attrs"].items()},
        _text(described["name"]),
        QuantType[described["quant_type"]],
    )
    try:
        operator_of(node).bind(node.attrs)
    except NnrtError as error:
        raise error.at(node.type.name + quoted_name(node.name)) from error
    return node


def _quant_param(described: Any) -> QuantParam:
    scale, zero_point, num_bits = described
    if type(scale) is not float:
        raise TypeError(f"a scale is {reprlib.repr(scale)}, no number with a point")
    return QuantParam(scale, _integer(zero_point, _INT32), _integer(num_bits, _INT32))


def _constant(tensors: Sequence[TensorSpec], index: int, size: int, part: Part) -> Constant:
    if not 0 <= index < len(tensors):
        raise InvalidFile(f"it has data for tensor {index} of {len(tensors)}")
    spec = tensors[index]
    if spec.is_dynamic or not size == part.data.nbytes == spec.byte_size:
        raise InvalidFile(f"it has {part.data.nbytes} bytes for tensor {index}, which is {spec}")
    data: Array = np.frombuffer(part.data, spec.numpy_dtype) if size else np.empty(0, spec.numpy_dtype)
    return Constant(part.sha256, size, data.reshape(spec.shape))


def _attr(value: Any) -> AttrValue:
    """Return an attribute's value; the operator checks its type."""
    if isinstance(value, list):
        count = sum(len(entry) for entry in value if isinstance(entry, list))
        require_at_most(MAX_ATTRIBUTE_VALUES, max(count, len(value)), "values in an attribute")
        return tuple(tuple(map(_number, entry)) if isinstance(entry, list) else _number(entry) for entry in value)  # type: ignore[return-value]
    return _text(value) if isinstance(value, str) else _number(value)


def _number(value: Any) -> bool | int | float:
    return value if isinstance(value, bool | float) else _integer(value)


def _each(values: Any, read: Callable[[Any], ValueT]) -> tuple[ValueT, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{reprlib.repr(values)} is no list")
    return tuple(map(read, values))


def _integers(values: Any) -> tuple[int, ...]:
    return _each(values, _integer)


def _integer(value: Any, allowed: range = _INT64) -> int:
    if type(value) is not int or value not in allowed:
        raise TypeError(f"{reprlib.repr(value)} is no integer in {allowed.start}..{allowed.stop - 1}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{reprlib.repr(value)} is no text")
    value.encode()  # Refuses surrogates, which JSON can spell.
    return value
