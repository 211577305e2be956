"""Header of an ONNX file: metadata, inputs and outputs, read without the weights."""

import mmap
import os

from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, TypeProto, ValueInfoProto
from typing_extensions import Buffer

from nnrt_client.onnx_import.declared import DeclaredTensor, Header
from nnrt_client.onnx_import.file import declared_dimension, known_dtype, type_name
from nnrt_client.onnx_import.messages import Malformed, fields
from nnrt_hdi.errors import InvalidFile, InvalidPath
from nnrt_hdi.tensor import data_type_of

# Field numbers: ModelProto.graph; GraphProto.initializer, and the other fields of GraphProto that are read;
# TensorProto.name.
_GRAPH = 7
_INITIALIZER = 5
_KEPT_OF_GRAPH = {2, 10, 11, 12}  # name, doc_string, input, output
_TENSOR_NAME = 8


def read_header(source: str | os.PathLike[str] | Buffer) -> Header:
    """Read the header of a file, given by its path or its bytes.

    Raises:
        InvalidPath: the file is missing or not accessible.
        InvalidFile: it is no ONNX file.
    """
    if not isinstance(source, str | os.PathLike):
        return _header(memoryview(source).cast("B"))
    place = repr(os.fspath(source))
    try:
        # O_NONBLOCK: opening a pipe must not wait for its writer.
        with os.fdopen(os.open(source, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise InvalidFile("it is empty", place=place)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping, memoryview(mapping) as view:
                return _header(view)
    except InvalidFile as error:
        raise InvalidFile(error.message, place=place) from error
    except (OSError, ValueError) as error:
        raise InvalidPath(getattr(error, "strerror", None) or str(error), place=place) from error


def _header(data: memoryview) -> Header:
    model, initializers = ModelProto(), set[str]()
    try:
        for field in fields(data, 0, len(data)):
            if field.number != _GRAPH:
                model.MergeFromString(bytes(data[field.begin : field.end]))
                continue
            for part in fields(data, field.content, field.end):
                if part.number in _KEPT_OF_GRAPH:
                    model.graph.MergeFromString(bytes(data[part.begin : part.end]))
                elif part.number == _INITIALIZER:
                    names = (of for of in fields(data, part.content, part.end) if of.number == _TENSOR_NAME)
                    initializers.update(str(data[of.content : of.end], "utf-8", "replace") for of in names)
    except (DecodeError, Malformed) as error:
        raise InvalidFile("it is no ONNX file, or damaged") from error
    if not model.HasField("graph"):
        raise InvalidFile("it holds no graph; give an ONNX model")
    graph = model.graph
    return Header(
        inputs=tuple(declared_tensor(info) for info in graph.input if info.name not in initializers),
        outputs=tuple(map(declared_tensor, graph.output)),
        optional_inputs=tuple(declared_tensor(info) for info in graph.input if info.name in initializers),
        producer=model.producer_name,
        domain=model.domain,
        description=model.doc_string,
        version=model.model_version if model.HasField("model_version") else None,
        graph_name=graph.name,
        graph_description=graph.doc_string,
        metadata={entry.key: entry.value for entry in model.metadata_props},
    )


def declared_tensor(info: ValueInfoProto) -> DeclaredTensor:
    """Return an input or output as the file declares it."""
    name, type_text, tensor = info.name, _type_text(info.type), info.type.tensor_type
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return DeclaredTensor(name, type_text, (kind or "unknown").removesuffix("_type").upper(), None)
    dtype = known_dtype(tensor.elem_type)
    data_type = type_name(tensor.elem_type) if dtype is None else data_type_of(dtype).name
    if not tensor.HasField("shape"):
        return DeclaredTensor(name, type_text, data_type, None)
    dims = tensor.shape.dim
    shape = tuple(map(declared_dimension, dims))
    return DeclaredTensor(name, type_text, data_type, shape, tuple(dim.denotation for dim in dims))


def _type_text(type_: TypeProto) -> str:
    """Return a type in ONNX Runtime's notation, or an empty text if the file declares none."""
    match type_.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({_element_text(type_.tensor_type.elem_type)})"
        case "sparse_tensor_type":
            return f"sparse_tensor({_element_text(type_.sparse_tensor_type.elem_type)})"
        case "sequence_type":
            return f"seq({_type_text(type_.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({_type_text(type_.optional_type.elem_type)})"
        case "map_type":
            map_type = type_.map_type
            return f"map({_element_text(map_type.key_type)},{_type_text(map_type.value_type)})"
    return ""


def _element_text(data_type: int) -> str:
    known = TensorProto.DataType.values()
    return str(TensorProto.DataType.Name(data_type)).lower() if data_type in known else str(data_type)
