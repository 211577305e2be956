"""Graphs as bytes: their digest, and a file that holds one with its constants."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from typing_extensions import Buffer

from nnrt_hdi.container import Part, packed, unpacked
from nnrt_hdi.enums import DataType, Format, NodeType, QuantType
from nnrt_hdi.errors import InvalidFile, NnrtError
from nnrt_hdi.graph import AttrValue, Constant, Graph, Node
from nnrt_hdi.tensor import Array, QuantParam, TensorSpec

KIND = "graph"

ValueT = TypeVar("ValueT")


def graph_digest(graph: Graph) -> bytes:
    """SHA-256 of everything a graph says, constants by their digests: equal graphs, and only they, have equal ones."""
    text = json.dumps(_described(graph), separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).digest()


def packed_graph(graph: Graph) -> list[Buffer]:
    """A file that holds a graph, as pieces to be written one after the other. Each constant is in it once."""
    parts: dict[bytes, Part] = {}
    for index, constant in graph.constants.items():
        if constant.data is None:
            raise InvalidFile("its data is not here; a file holds a whole graph", place=graph.tensor_place(index))
        data = constant.data.data.cast("B") if constant.size_bytes else memoryview(b"")
        parts.setdefault(constant.sha256, Part(data, constant.sha256))
    return packed(KIND, _described(graph), list(parts.values()))


def unpacked_graph(data: Buffer) -> Graph:
    """The graph that `packed_graph` gave; its constants are read-only views of `data`.

    Raises InvalidFile for anything else. What the nodes compute is not checked here: see `nnrt_hdi.ops`.
    """
    about, parts = unpacked(KIND, data)
    try:
        return _graph(about, {part.sha256: part for part in parts})
    except InvalidFile:
        raise
    except NnrtError as error:
        raise InvalidFile(f"it holds no sound graph: {error}") from error
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidFile(f"it holds no graph: {type(error).__name__} {error}") from error


def described_spec(spec: TensorSpec) -> dict[str, Any]:
    """A tensor spec as JSON."""
    return {
        "data_type": spec.data_type.name,
        "shape": list(spec.shape),
        "format": spec.format.name,
        "quant": [[param.scale, param.zero_point, param.num_bits] for param in spec.quant],
        "name": spec.name,
    }


def read_spec(described: Any) -> TensorSpec:
    """The tensor spec that `described_spec` described. Raises KeyError, TypeError, ValueError or NnrtError."""
    return TensorSpec(
        DataType[described["data_type"]],
        _integers(described["shape"]),
        Format[described["format"]],
        tuple(QuantParam(float(scale), *_integers(rest)) for scale, *rest in described["quant"]),
        _text(described["name"]),
    )


def _described(graph: Graph) -> dict[str, Any]:
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


def _graph(about: Mapping[str, Any], parts: Mapping[bytes, Part]) -> Graph:
    tensors = _each(about["tensors"], read_spec)
    return Graph(
        tensors,
        _each(about["nodes"], _node),
        _integers(about["inputs"]),
        _integers(about["outputs"]),
        {
            _integers([index])[0]: _constant(tensors, index, size, parts[bytes.fromhex(sha256)])
            for index, sha256, size in about["constants"]
        },
        _text(about["name"]),
    )


def _node(described: Any) -> Node:
    return Node(
        NodeType[described["type"]],
        _integers(described["inputs"]),
        _integers(described["outputs"]),
        {_text(name): _attr(value) for name, value in described["attrs"].items()},
        _text(described["name"]),
        QuantType[described["quant_type"]],
    )


def _constant(tensors: Sequence[TensorSpec], index: int, size: int, part: Part) -> Constant:
    if not 0 <= index < len(tensors):
        raise InvalidFile(f"it has data for tensor {index} of {len(tensors)}")
    spec = tensors[index]
    if spec.is_dynamic or not size == part.data.nbytes == spec.byte_size:
        raise InvalidFile(f"it has {part.data.nbytes} bytes for tensor {index}, which is {spec}")
    data: Array = np.frombuffer(part.data, spec.numpy_dtype).reshape(spec.shape)
    return Constant(part.sha256, part.data.nbytes, data)


def _attr(value: Any) -> AttrValue:
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        # Of what kind, and how deep, the operator checks.
        return tuple(_attr(entry) for entry in value)  # type: ignore[return-value]
    raise TypeError(f"an attribute is {value!r}")


def _each(values: Any, read: Callable[[Any], ValueT]) -> tuple[ValueT, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is no list")
    return tuple(map(read, values))


def _integers(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise TypeError(f"{values!r} is no list of integers")
    return tuple(values)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
