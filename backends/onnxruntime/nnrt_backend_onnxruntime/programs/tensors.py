"""Data of a program's tensors: large ones are in the parts that came with the model, others in the model.

A tensor in a part is declared like a tensor in a file, but its `external_data` have the part's SHA-256 in place of a
file name. Other locations are refused, and ONNX Runtime never sees any.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from nnrt_onnx_lowering.builder import WEIGHTS
from nnrt_onnx_lowering.value import AnyArray
from onnx import TensorProto, helper

from nnrt_backend_onnxruntime.programs.skeleton import all_graphs, quoted
from nnrt_hdi.errors import InvalidFile, OutOfMemory
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import MAX_RANK, NUMPY_DTYPES

# The most bytes of tensors that ONNX Runtime takes only inside of the model; protobuf's limit is 2 GiB.
MOST_EMBEDDED_BYTES = 1 << 30
# The most bytes that several tensors may share, because ONNX Runtime copies them for each tensor.
MOST_SHARED_BYTES = 1 << 30
# A number may contain up to four packed elements.
_MOST_PACKED = 4
_NUMBERS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
_KEYS = {"location", "offset", "length"}
# The bits of an element of each data type, taken from the type's name.
_BITS = {TensorProto.FLOAT: 32, TensorProto.DOUBLE: 64, TensorProto.BOOL: 8} | {
    number: int(digits[1])
    for name, number in TensorProto.DataType.items()
    if (digits := re.match(r"[A-Z]+?(\d+)", name))
}

Region = memoryview


def take_tensors(model: onnx.ModelProto, parts: Sequence[Part], max_tensor_bytes: int) -> Mapping[str, AnyArray]:
    """Move the data of all tensors to where ONNX Runtime takes them.

    Returns:
        Views of the parts by the tensors' names. All other data are in the model afterwards.

    Raises:
        InvalidFile: A tensor's data are elsewhere, or don't match its shape.
        OutOfMemory: Sparse tensors would be too large.
    """
    by_digest = {part.sha256.hex(): part.data for part in parts}
    weights: dict[str, AnyArray] = {}
    embedded_bytes = 0
    left_bytes = sum(part.nbytes for part in by_digest.values()) + MOST_SHARED_BYTES
    for tensor in _attributes_and_inner(model.graph):
        _require_possible(tensor)
        if (region := _region(tensor, by_digest)) is not None:
            embedded_bytes += region.nbytes
            _embed(tensor, region, embedded_bytes)
    read = set(_names_read(model.graph))
    for tensor in model.graph.initializer:
        _require_possible(tensor)
        region = _region(tensor, by_digest)
        if region is None:
            continue
        left_bytes -= region.nbytes
        if left_bytes < 0:
            raise InvalidFile(
                f"its data, and those of tensors before it, are other tensors' as well; all copies together may have"
                f" {MOST_SHARED_BYTES} bytes: use one tensor several times instead",
                place=f"tensor {quoted(tensor.name)}",
            )
        dtype = _dtype(tensor)
        # Shapes may depend on small tensors.
        if dtype is None or region.nbytes <= INLINE_CONSTANT_BYTES:
            embedded_bytes += region.nbytes
            _embed(tensor, region, embedded_bytes)
        elif tensor.name in read:
            weights[tensor.name] = _viewed(region, dtype).reshape(tuple(tensor.dims))
            # No file has this name: this process passes the tensor to ONNX Runtime.
            del tensor.external_data[:]
            tensor.external_data.add(key="location", value=WEIGHTS)
    _require_distinct(model.graph)
    _drop_unread(model.graph)
    dense_bytes = 0
    for sparse in _sparse_tensors(model.graph):
        dense_bytes += _dense_bytes(sparse, max_tensor_bytes - dense_bytes)
    return weights


def _attributes_and_inner(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Yield all tensors except the initializers of the outermost graph."""
    for inner in all_graphs(graph):
        if inner is not graph:
            yield from inner.initializer
        for node in inner.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def _names_read(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that nodes read or that are outputs, also of inner graphs."""
    for inner in all_graphs(graph):
        for node in inner.node:
            yield from node.input
        yield from (entry.name for entry in inner.output)


def _drop_unread(graph: onnx.GraphProto) -> None:
    """Remove initializers in parts that no node reads, because ONNX Runtime accepts no data for them."""
    unread = {tensor.name for tensor in graph.initializer if _is_external(tensor) and not _is_passed_as_array(tensor)}
    if not unread:
        return
    tensors = [TensorProto.FromString(one.SerializeToString()) for one in graph.initializer if one.name not in unread]
    inputs = [onnx.ValueInfoProto.FromString(one.SerializeToString()) for one in graph.input if one.name not in unread]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(tensors)
    graph.input.extend(inputs)


def _is_passed_as_array(tensor: TensorProto) -> bool:
    """Return whether this process passes the tensor to ONNX Runtime as an array."""
    return any(entry.value == WEIGHTS for entry in tensor.external_data)


def _sparse_tensors(graph: onnx.GraphProto) -> Iterator[onnx.SparseTensorProto]:
    for inner in all_graphs(graph):
        yield from inner.sparse_initializer
        for node in inner.node:
            for attribute in node.attribute:
                if attribute.HasField("sparse_tensor"):
                    yield attribute.sparse_tensor
                yield from attribute.sparse_tensors


def _require_possible(tensor: TensorProto) -> None:
    """Refuse an impossible shape, and data that don't fill the shape, for which ONNX Runtime would allocate memory."""
    place = f"tensor {quoted(tensor.name)}"
    if len(tensor.dims) > MAX_RANK or any(dim < 0 for dim in tensor.dims):
        raise InvalidFile(f"it has the shape {list(tensor.dims)[: MAX_RANK + 1]}", place=place)
    count = math.prod(tensor.dims)
    if _is_external(tensor) or not count:
        return
    if tensor.HasField("raw_data"):
        given, wanted = len(tensor.raw_data), _size_bytes(tensor, count)
    elif tensor.data_type == TensorProto.STRING:
        given, wanted = len(tensor.string_data), count
    else:
        given, wanted = _MOST_PACKED * max(len(getattr(tensor, name)) for name in _NUMBERS), count
    if given < wanted or (tensor.HasField("raw_data") and given != wanted):
        raise InvalidFile(f"its data do not make up its shape {list(tensor.dims)}", place=place)


def _is_external(tensor: TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL or bool(tensor.external_data)


def _region(tensor: TensorProto, parts: Mapping[str, memoryview]) -> Region | None:
    """Return the data of a tensor in a part, or None if they are in the model."""
    if not _is_external(tensor):
        return None
    place = f"tensor {quoted(tensor.name)}"
    entries = {entry.key: entry.value for entry in tensor.external_data}
    part = parts.get(entries.get("location", ""))
    if part is None or not entries.keys() <= _KEYS:
        raise InvalidFile(
            f"its data are in {quoted(str(entries))}, which is none of the parts that were sent; nothing is read from"
            " files here",
            place=place,
        )
    size_bytes = _size_bytes(tensor, math.prod(tensor.dims))
    try:
        offset, length = int(entries.get("offset", "0")), int(entries.get("length", str(size_bytes)))
    except ValueError as error:
        raise InvalidFile("offset and length are no numbers", place=place) from error
    if length != size_bytes or not 0 <= offset <= part.nbytes - length:
        raise InvalidFile(
            f"its data are {length} bytes from {offset} on in a part of {part.nbytes}; its shape"
            f" {list(tensor.dims)} has {size_bytes}",
            place=place,
        )
    return part[offset : offset + length]


def size_of(data_type: int, count: int) -> int | None:
    """Return the size of `count` elements in bytes, or None if it depends on the elements, as for strings."""
    bits = _BITS.get(data_type)
    return None if bits is None else (count * bits + 7) // 8


def _size_bytes(tensor: TensorProto, count: int) -> int:
    size_bytes = size_of(tensor.data_type, count)
    if size_bytes is None:
        raise InvalidFile(
            f"it has the data type {tensor.data_type}, of which there are no bytes",
            place=f"tensor {quoted(tensor.name)}",
        )
    return size_bytes


def _dtype(tensor: TensorProto) -> "np.dtype[np.generic] | None":
    """Return the numpy data type if ONNX Runtime takes arrays of it, else None."""
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    return dtype if dtype in NUMPY_DTYPES.values() else None


def _embed(tensor: TensorProto, region: Region, embedded_bytes: int) -> None:
    if embedded_bytes > MOST_EMBEDDED_BYTES:
        raise InvalidFile(
            f"tensors in attributes, in inner graphs, and of types that only ONNX has, together have more than"
            f" {MOST_EMBEDDED_BYTES} bytes; make them initializers of the outermost graph",
            place=f"tensor {quoted(tensor.name)}",
        )
    del tensor.external_data[:]
    tensor.ClearField("data_location")
    tensor.raw_data = bytes(region)


def _viewed(region: Region, dtype: "np.dtype[np.generic]") -> AnyArray:
    if dtype.kind == "b":  # The bytes may have any value.
        return np.asarray(np.frombuffer(region, np.uint8) != 0)
    array = np.frombuffer(region, dtype)
    return array if array.flags.aligned else array.copy()


def _require_distinct(graph: onnx.GraphProto) -> None:
    """Refuse two initializers of one name: ONNX Runtime would look for the data of one of them in a file."""
    names = [tensor.name for tensor in graph.initializer]
    if len(set(names)) != len(names):
        raise InvalidFile("it has two initializers of one name")


def _dense_bytes(sparse: onnx.SparseTensorProto, most_bytes: int) -> int:
    """Return the bytes of a sparse tensor in ONNX Runtime, where all tensors are dense."""
    place = f"sparse tensor {quoted(sparse.values.name)}"
    for tensor in (sparse.values, sparse.indices):
        if _is_external(tensor):
            raise InvalidFile("its data are not in the model; make it a dense tensor", place=place)
        _require_possible(tensor)
    if any(dim < 0 for dim in sparse.dims):
        raise InvalidFile(f"it has the shape {list(sparse.dims)[: MAX_RANK + 1]}", place=place)
    size_bytes = _size_bytes(sparse.values, math.prod(sparse.dims))
    if size_bytes > most_bytes:
        raise OutOfMemory(
            f"dense it has {size_bytes} bytes; {most_bytes} are left of those that all of them may have", place=place
        )
    return size_bytes
