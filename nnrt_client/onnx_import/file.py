"""Reader of ONNX files, whose contents are not trusted."""

import math
import mmap
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto, TensorShapeProto, helper, numpy_helper

from nnrt_client.model.model import Model
from nnrt_client.onnx_import.declared import Dimension
from nnrt_client.onnx_import.raw_data import SAME_FILE, without_raw_data
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value, constant_value
from nnrt_hdi.errors import InvalidFile, InvalidParameter, InvalidPath, OperationFailed
from nnrt_hdi.files.container import LARGE_BYTES
from nnrt_hdi.files.file_part import OpenFile
from nnrt_hdi.files.file_systems import is_of_this_host
from nnrt_hdi.files.fingerprint import Fingerprint
from nnrt_hdi.mapped_files import MappedFile
from nnrt_hdi.tensor import NUMPY_DTYPES, UNKNOWN_DIM, Array

Source = str | PathLike[str] | bytes
BytesT = TypeVar("BytesT", bytes, memoryview)

# Errors of the path, as opposed to errors of the disk.
_PATH_ERRORS = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
# Largest message that protobuf parses, in bytes.
_LARGEST_FILE = 2**31 - 1
_DTYPES = {int(helper.np_dtype_to_tensor_dtype(dtype)): dtype for dtype in NUMPY_DTYPES.values()}


class OnnxFile:
    """ONNX file: its ModelProto, and its external data."""

    def __init__(
        self, source: Source, beside: dict[str, Fingerprint] | None = None, *, is_mapped: bool = False
    ) -> None:
        """Read the file. Raise InvalidPath if it is missing or not accessible, InvalidFile if it is no ONNX file.

        `beside` takes the states of other files, by location, before external data are read from them. With
        `is_mapped`, large data stay in their files. Then nobody should write to these as long as the data are in use:
        the data would change, and reading beyond the end of a shortened file ends the process.
        """
        self._beside: dict[str, Fingerprint] = {} if beside is None else beside
        self._mappings: dict[Path, memoryview | None] | None = {} if is_mapped else None
        self.proto = onnx.ModelProto()
        self.directory: Path | None = None
        data: bytes | memoryview
        if isinstance(source, bytes):
            data = source
        elif not isinstance(source, str | PathLike):
            raise InvalidParameter(f"the model is {type(source).__name__}; give a path, or the bytes of a file")
        else:
            path = Path(source)
            self.directory = path.parent
            mapping = self._mapping(path)
            data = _read(path, "", 0, None) if mapping is None or mapping.nbytes > _LARGEST_FILE else mapping
        self._data = memoryview(data)
        self.size_bytes = self._data.nbytes
        try:
            self.proto.ParseFromString(without_raw_data(self._data) or bytes(data))
        except DecodeError as error:
            raise InvalidFile("it is no ONNX file, or damaged") from error
        if not self.proto.HasField("graph") or not self.proto.opset_import:
            raise InvalidFile("it holds no graph; give an ONNX model")

    def part(self, proto: Any) -> "OnnxFile":
        """Return a copy of the file with another ModelProto, or with an object that has the same fields."""
        part = copy(self)
        part.proto = proto
        return part

    def with_raw_data(self, tensor: TensorProto) -> TensorProto:
        """Return the tensor, with external data replaced by raw data."""
        if tensor.data_location != TensorProto.EXTERNAL:
            return tensor
        data = self.stored_data(tensor)
        return TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=bytes(data))

    def value(self, model: Model, tensor: TensorProto) -> Value:
        """Return a constant whose elements are read on first use. Raise Unsupported for data types that NNRt lacks."""
        dtype, shape = self._dtype(tensor), tuple(tensor.dims)
        place = f"tensor {tensor.name!r}"
        if any(dim < 0 for dim in shape) or len(shape) > 32:
            raise InvalidFile(f"it has the shape {list(shape)[:33]}", place=place)
        if 0 in shape:
            # There is nothing to read, and shape arithmetic may use an empty tensor.
            return constant_value(model, np.empty(shape, dtype))
        size_bytes = math.prod(shape) * dtype.itemsize
        if tensor.data_location == TensorProto.EXTERNAL:
            return constant_value(model, lambda: self._external_array(tensor, dtype, size_bytes), (dtype, shape))
        return constant_value(model, lambda: _elements(tensor, dtype, size_bytes, place), (dtype, shape))

    def array(self, model: Model, tensor: TensorProto) -> Array:
        """Return the elements of a tensor in an attribute."""
        array = self.value(model, tensor).array
        assert array is not None
        return array

    def stored_bytes(self, tensor: TensorProto) -> int:
        """Return the approximate length of `stored_data` in bytes."""
        if tensor.data_location != TensorProto.EXTERNAL:
            return int(tensor.ByteSize())
        return _size_bytes(tensor)

    def stored_data(self, tensor: TensorProto) -> bytes | memoryview:
        """Return the elements of a tensor in ONNX's raw_data encoding. The data type may be any but string."""
        if tensor.data_location == TensorProto.EXTERNAL:
            return self._external_bytes(tensor, _size_bytes(tensor))
        if tensor.HasField("raw_data"):
            return bytes(tensor.raw_data)
        place = f"tensor {tensor.name!r}"
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
        return _elements(tensor, dtype, 0, place).tobytes()

    def _dtype(self, tensor: TensorProto) -> np.dtype[Any]:
        if known := _DTYPES.get(tensor.data_type):
            return known
        try:
            helper.tensor_dtype_to_np_dtype(tensor.data_type)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidFile(f"it has the data type {tensor.data_type}", place=f"tensor {tensor.name!r}") from error
        return refuse(f"tensor {tensor.name!r} is {type_name(tensor.data_type)}, which is no data type of NNRt")

    def _external_array(self, tensor: TensorProto, dtype: np.dtype[Any], size_bytes: int) -> Array:
        return _view(self._external_bytes(tensor, size_bytes), dtype).reshape(tuple(tensor.dims))

    def _external_bytes(self, tensor: TensorProto, size_bytes: int) -> bytes | memoryview:
        """Return the external data of a tensor, from the model's file or from another file in its directory."""
        place = f"external data of {tensor.name!r}"
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        try:
            offset, length = (int(entries.get(key) or default) for key, default in (("offset", 0), ("length", -1)))
        except ValueError as error:
            raise InvalidFile("offset and length are no numbers", place=place) from error
        if location == SAME_FILE:
            return _require_size(self._data[offset : offset + length], size_bytes, f"tensor {tensor.name!r}")
        if self.directory is None:
            raise InvalidPath(f"they are in {location!r}; give the model by its path", place=place)
        if offset < 0 or length not in (-1, size_bytes):
            raise InvalidFile(f"they are {length} bytes from {offset} on; {size_bytes} make up its shape", place=place)
        directory = self.directory.resolve()
        try:
            path = (directory / location).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise InvalidPath(f"{location!r} is no path", place=place) from error
        if not location or path == directory or not path.is_relative_to(directory):
            raise InvalidPath(f"{location!r} is not a file in the directory of the model", place=place)
        if location not in self._beside:
            with _errors_of_paths(f"{place}, {location!r}"):
                self._beside[location] = Fingerprint.of(path.stat())
        mapping = self._mapping(path)
        data = (
            _read(path, f"{place}, {location!r}", offset, size_bytes)
            if mapping is None
            else mapping[offset : offset + size_bytes]
        )
        if len(data) != size_bytes:
            raise InvalidFile(f"{location!r} ends before the {size_bytes} bytes from {offset} on", place=place)
        return data

    def _mapping(self, path: Path) -> memoryview | None:
        """Return the mapped content of a large file, or None if it is to be read."""
        if self._mappings is None:
            return None
        if path not in self._mappings:
            self._mappings[path] = _map(path)
        return self._mappings[path]


def attribute_value(file: OnnxFile, model: Model, attribute: AttributeProto) -> Any:
    """Convert an attribute to a number, a string, a tuple of either, or an array. Return other types unchanged."""
    match attribute.type:
        case AttributeProto.FLOAT:
            return attribute.f
        case AttributeProto.INT:
            return attribute.i
        case AttributeProto.STRING:
            return attribute.s.decode(errors="replace")
        case AttributeProto.FLOATS:
            return tuple(attribute.floats)
        case AttributeProto.INTS:
            return tuple(attribute.ints)
        case AttributeProto.STRINGS:
            return tuple(text.decode(errors="replace") for text in attribute.strings)
        case AttributeProto.TENSOR:
            return file.array(model, attribute.t)
        case AttributeProto.GRAPH:
            return attribute.g
    return attribute


def _size_bytes(tensor: TensorProto) -> int:
    """Return the size of a tensor's elements in bytes. Elements of 4 bits or fewer are packed."""
    name = type_name(tensor.data_type)
    bits = {"FLOAT": 32, "DOUBLE": 64, "BOOL": 8}.get(name) or int((re.findall(r"\d+", name) or ["0"])[0])
    if not bits or any(dim < 0 for dim in tensor.dims):
        raise InvalidFile(f"it is {name}{list(tensor.dims)[:33]}", place=f"tensor {tensor.name!r}")
    return (math.prod(tensor.dims) * bits + 7) // 8


def declared_size(dim: TensorShapeProto.Dimension) -> int:
    """Return a declared dimension, or -1 if it is unknown. Numbers below 0 are unknown too, as in ONNX Runtime."""
    return max(dim.dim_value, UNKNOWN_DIM) if dim.HasField("dim_value") else UNKNOWN_DIM


def declared_dimension(dim: TensorShapeProto.Dimension) -> Dimension:
    """Return a declared dimension: its number, else its name, else None."""
    size = declared_size(dim)
    return size if size != UNKNOWN_DIM else str(dim.dim_param) or None


def known_dtype(data_type: int) -> np.dtype[Any] | None:
    """Return the dtype of a data type of ONNX, or None if NNRt doesn't have it."""
    return _DTYPES.get(data_type)


def type_name(data_type: int) -> str:
    known = TensorProto.DataType.values()
    return str(TensorProto.DataType.Name(data_type)) if data_type in known else f"data type {data_type}"


def _read(path: Path, place: str, offset: int, size_bytes: int | None) -> bytes:
    """Read `size_bytes` bytes of a regular file from an offset on, or the whole file if `size_bytes` is None.

    Return no bytes if the file ends before them.
    """
    # O_NONBLOCK: opening a pipe must not wait for its writer.
    with _errors_of_paths(place), os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise InvalidPath("it is no regular file", place=place)
        if size_bytes is None and status.st_size > _LARGEST_FILE:
            raise InvalidFile(f"it has {status.st_size} bytes; use external data beyond 2 GiB", place=place)
        if size_bytes is not None and offset + size_bytes > status.st_size:
            return b""
        file.seek(offset)
        return file.read() if size_bytes is None else file.read(size_bytes)


@contextmanager
def _errors_of_paths(place: str) -> Iterator[None]:
    """Raise InvalidPath or OperationFailed for an OSError of the block."""
    try:
        yield
    except OSError as error:
        kind = InvalidPath if isinstance(error, _PATH_ERRORS) else OperationFailed
        raise kind(error.strerror or str(error), place=place) from error


def _map(path: Path) -> memoryview | None:
    """Map a large file that no other host can change; return None for others, and for files that can't be read."""
    try:
        file = OpenFile(path)
        if file.size_bytes >= LARGE_BYTES and is_of_this_host(path):
            return memoryview(MappedFile(file.descriptor, file.size_bytes, access=mmap.ACCESS_READ))
    except (OSError, ValueError):  # Reading says why.
        pass
    return None


def _elements(tensor: TensorProto, dtype: np.dtype[Any], size_bytes: int, place: str) -> Array:
    """Return the elements of a tensor from raw_data, or from a typed field such as float_data."""
    if tensor.HasField("raw_data"):
        # Each access of raw_data copies it, so the view is the only user of this copy.
        return _view(_require_size(tensor.raw_data, size_bytes, place), dtype).reshape(tuple(tensor.dims))
    try:
        array = np.asarray(numpy_helper.to_array(tensor), dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidFile("its numbers do not make up its shape", place=place) from error
    if array.shape != tuple(tensor.dims):
        raise InvalidFile("its numbers do not make up its shape", place=place)
    return array


def _require_size(data: BytesT, size_bytes: int, place: str) -> BytesT:
    if len(data) != size_bytes:
        raise InvalidFile(f"it has {len(data)} bytes; {size_bytes} make up its shape", place=place)
    return data


def _view(data: bytes | memoryview, dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "b":
        return np.asarray(np.frombuffer(data, np.uint8) != 0)
    return np.frombuffer(data, dtype.newbyteorder("<"))
