"""ONNX files as programs: one part with the model, and parts with the data of its large tensors.

A large tensor becomes external data, as ONNX defines it. Its `location` is the SHA-256 of a part instead of a path.
Small tensors share a part, so that there are few parts.
"""

from collections.abc import Iterator, Mapping, Sequence

import onnx
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto

from nnrt_client.model.program import ONNX, Program
from nnrt_client.onnx_import.file import OnnxFile, known_dtype
from nnrt_client.onnx_import.freezing import freeze
from nnrt_client.onnx_import.scope import put_in_order
from nnrt_client.session.hashing import sha256_of_each
from nnrt_client.tensors.frozen import Constants
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.files.compiled import MAX_PARTS
from nnrt_hdi.files.file_part import UnreadPart
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES
from nnrt_hdi.mapped_files import reading
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import UNKNOWN_DIM, format_shape

# Any two successive parts together exceed the least size, so parts of weights number at most 2 * _LEAST_SHARE, within
# MAX_PARTS: the model is one more part, and a device that exports the program adds one.
_LEAST_SHARE = MAX_PARTS // 2 - 4
_LEAST_PART_BYTES = 1 << 20
# Alignment of tensors in a part, in bytes: a cache line.
_ALIGNMENT = 64


class JoinedPart(UnreadPart):
    """Part that consists of pieces. So data of mapped files stay in their files."""

    __slots__ = ("_pieces",)

    _pieces: Sequence[memoryview]

    def __init__(self, pieces: Sequence[memoryview], sha256: bytes) -> None:
        object.__setattr__(self, "_pieces", pieces)
        object.__setattr__(self, "sha256", sha256)

    @property
    def size_bytes(self) -> int:
        return sum(piece.nbytes for piece in self._pieces)

    def fill(self, memory: memoryview, start: int) -> None:
        for piece in self._pieces:
            found = piece[start : start + memory.nbytes]
            with reading(found):
                memory[: found.nbytes] = found
            memory, start = memory[found.nbytes :], max(start - piece.nbytes, 0)


def make_program(file: OnnxFile, shapes: Mapping[str, Sequence[int]], constants: Constants) -> Program:
    """Split a file into a program. The file's ModelProto is modified.

    `shapes` fix dimensions of inputs by name, `constants` freeze inputs.
    """
    graph = file.proto.graph
    freeze(file.proto, constants)
    _drop_inputs(graph, {tensor.name for tensor in graph.initializer})
    for entry in graph.input:
        for dim in entry.type.tensor_type.shape.dim if entry.type.tensor_type.HasField("shape") else ():
            if dim.dim_value < 0:  # Some exporters write unknown dimensions as negative numbers.
                dim.ClearField("value")
    for name, shape in shapes.items():
        _set_shape(_find_input(graph, name), shape)
    weights = _make_parts(file, [tensor for tensor in _tensors(file.proto) if _is_large(tensor)])
    put_in_order(graph)
    return Program(ONNX, (Part.of(file.proto.SerializeToString(deterministic=True)), *weights))


# ---- inputs


def _drop_inputs(graph: GraphProto, names: set[str]) -> None:
    """Remove inputs that have an initializer: old files list all weights as inputs."""
    kept = [entry for entry in graph.input if entry.name not in names]
    if len(kept) != len(graph.input):
        del graph.input[:]
        graph.input.extend(kept)


def _find_input(graph: GraphProto, name: str) -> ValueInfoProto:
    for entry in graph.input:
        if entry.name == name:
            return entry
    known = [entry.name for entry in graph.input]
    raise InvalidParameter(f"there is no input {name!r}, for which a shape is given; there are {known}")


def _set_shape(entry: ValueInfoProto, shape: Sequence[int]) -> None:
    """Set the shape of an input. -1 leaves a dimension as it is. Raise InvalidParameter if the shape doesn't fit."""
    tensor = entry.type.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else UNKNOWN_DIM for dim in tensor.shape.dim]
    is_known = tensor.HasField("shape")
    fits = not is_known or (
        len(dims) == len(shape)
        and all(UNKNOWN_DIM in (was, given) or was == given for was, given in zip(dims, shape, strict=True))
    )
    if not fits or any(given < UNKNOWN_DIM for given in shape):
        raise InvalidParameter(
            f"{format_shape(shape)} is given for input {entry.name!r}, which has the shape {format_shape(dims)}"
        )
    for at, given in enumerate(shape):
        dim = tensor.shape.dim[at] if is_known else tensor.shape.dim.add()
        if given != UNKNOWN_DIM:
            dim.dim_value = given


# ---- data


def _tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Yield all tensors, with those of inner graphs and of functions."""
    yield from _tensors_in(model.graph)
    for function in model.functions:
        yield from _tensors_of(function.node)


def _tensors_in(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    yield from _tensors_of(graph.node)


def _tensors_of(nodes: Sequence[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from _tensors_in(graph)


def _is_large(tensor: TensorProto) -> bool:
    """Return whether a tensor's data go into a part, because they are large or external."""
    if tensor.data_location == TensorProto.EXTERNAL:
        return True
    return tensor.ByteSize() > INLINE_CONSTANT_BYTES and (
        tensor.HasField("raw_data") or known_dtype(tensor.data_type) is not None
    )


def _make_parts(file: OnnxFile, tensors: Sequence[TensorProto]) -> list[Part]:
    """Return parts with the data of the tensors, and make the tensors refer to them."""
    groups = list(_groups(file, tensors))
    placed = [_join(file, group) for group in groups]
    digests = sha256_of_each([pieces for pieces, _ in placed])
    for group, (_, places), sha256 in zip(groups, placed, digests, strict=True):
        _refer(group, sha256, places)
    return [
        Part(pieces[0], sha256) if len(pieces) == 1 else JoinedPart(pieces, sha256)
        for (pieces, _), sha256 in zip(placed, digests, strict=True)
    ]


def _groups(file: OnnxFile, tensors: Sequence[TensorProto]) -> Iterator[Sequence[TensorProto]]:
    """Yield successive tensors that share a part."""
    sizes = [file.stored_bytes(tensor) for tensor in tensors]
    least_bytes = max(_LEAST_PART_BYTES, sum(sizes) // _LEAST_SHARE)
    begin = 0
    while begin < len(tensors):
        end, size_bytes = begin + 1, sizes[begin]
        while end < len(tensors) and size_bytes + sizes[end] <= least_bytes:
            size_bytes += sizes[end]
            end += 1
        yield tensors[begin:end]
        begin = end


def _join(file: OnnxFile, tensors: Sequence[TensorProto]) -> tuple[list[memoryview], Sequence[tuple[int, int]]]:
    """Return the pieces of a part with the data of the tensors, and the offset and length of each."""
    offsets, pieces, offset = [], [], 0
    for tensor in tensors:
        data = file.stored_data(tensor)
        padding = -offset % _ALIGNMENT
        pieces += [memoryview(bytes(padding)), memoryview(data)]
        offsets.append((offset + padding, len(data)))
        offset += padding + len(data)
    return pieces[1:] if len(tensors) == 1 else pieces, offsets


def _refer(tensors: Sequence[TensorProto], sha256: bytes, places: Sequence[tuple[int, int]]) -> None:
    """Make the tensors refer to their places in a part, by `external_data`."""
    for tensor, (offset, length) in zip(tensors, places, strict=True):
        for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
            tensor.ClearField(field)
        del tensor.external_data[:]
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", sha256.hex()), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
