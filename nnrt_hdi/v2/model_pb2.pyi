from nnrt_hdi.v2 import enums_pb2 as _enums_pb2
from nnrt_hdi.v2 import node_pb2 as _node_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QuantParam(_message.Message):
    __slots__ = ("num_bits", "zero_point", "scale")
    NUM_BITS_FIELD_NUMBER: _ClassVar[int]
    ZERO_POINT_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    num_bits: int
    zero_point: int
    scale: float
    def __init__(self, num_bits: _Optional[int] = ..., zero_point: _Optional[int] = ..., scale: _Optional[float] = ...) -> None: ...

class ConstantRef(_message.Message):
    __slots__ = ("sha256", "size_bytes")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    size_bytes: int
    def __init__(self, sha256: _Optional[bytes] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class BufferRegion(_message.Message):
    __slots__ = ("buffer_id", "offset", "data_size")
    BUFFER_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_SIZE_FIELD_NUMBER: _ClassVar[int]
    buffer_id: int
    offset: int
    data_size: int
    def __init__(self, buffer_id: _Optional[int] = ..., offset: _Optional[int] = ..., data_size: _Optional[int] = ...) -> None: ...

class SharedBuffer(_message.Message):
    __slots__ = ("inline", "region", "constant", "chunked")
    INLINE_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_FIELD_NUMBER: _ClassVar[int]
    CHUNKED_FIELD_NUMBER: _ClassVar[int]
    inline: bytes
    region: BufferRegion
    constant: ConstantRef
    chunked: int
    def __init__(self, inline: _Optional[bytes] = ..., region: _Optional[_Union[BufferRegion, _Mapping]] = ..., constant: _Optional[_Union[ConstantRef, _Mapping]] = ..., chunked: _Optional[int] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("name", "data_type", "dims", "format", "data", "quant_params", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    DIMS_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    QUANT_PARAMS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    data_type: _enums_pb2.DataType
    dims: _containers.RepeatedScalarFieldContainer[int]
    format: _enums_pb2.Format
    data: SharedBuffer
    quant_params: _containers.RepeatedCompositeFieldContainer[QuantParam]
    value: PackedValue
    def __init__(self, name: _Optional[str] = ..., data_type: _Optional[_Union[_enums_pb2.DataType, str]] = ..., dims: _Optional[_Iterable[int]] = ..., format: _Optional[_Union[_enums_pb2.Format, str]] = ..., data: _Optional[_Union[SharedBuffer, _Mapping]] = ..., quant_params: _Optional[_Iterable[_Union[QuantParam, _Mapping]]] = ..., value: _Optional[_Union[PackedValue, _Mapping]] = ...) -> None: ...

class PackedValue(_message.Message):
    __slots__ = ("type", "shape")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    type: str
    shape: PackedShape
    def __init__(self, type: _Optional[str] = ..., shape: _Optional[_Union[PackedShape, _Mapping]] = ...) -> None: ...

class PackedShape(_message.Message):
    __slots__ = ("dims",)
    DIMS_FIELD_NUMBER: _ClassVar[int]
    dims: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dims: _Optional[_Iterable[int]] = ...) -> None: ...

class SubGraph(_message.Message):
    __slots__ = ("name", "input_indices", "output_indices", "node_indices")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INPUT_INDICES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_INDICES_FIELD_NUMBER: _ClassVar[int]
    NODE_INDICES_FIELD_NUMBER: _ClassVar[int]
    name: str
    input_indices: _containers.RepeatedScalarFieldContainer[int]
    output_indices: _containers.RepeatedScalarFieldContainer[int]
    node_indices: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., input_indices: _Optional[_Iterable[int]] = ..., output_indices: _Optional[_Iterable[int]] = ..., node_indices: _Optional[_Iterable[int]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "input_index", "output_index", "nodes", "all_tensors", "sub_graph")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INPUT_INDEX_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_INDEX_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    ALL_TENSORS_FIELD_NUMBER: _ClassVar[int]
    SUB_GRAPH_FIELD_NUMBER: _ClassVar[int]
    name: str
    input_index: _containers.RepeatedScalarFieldContainer[int]
    output_index: _containers.RepeatedScalarFieldContainer[int]
    nodes: _containers.RepeatedCompositeFieldContainer[_node_pb2.Node]
    all_tensors: _containers.RepeatedCompositeFieldContainer[Tensor]
    sub_graph: _containers.RepeatedCompositeFieldContainer[SubGraph]
    def __init__(self, name: _Optional[str] = ..., input_index: _Optional[_Iterable[int]] = ..., output_index: _Optional[_Iterable[int]] = ..., nodes: _Optional[_Iterable[_Union[_node_pb2.Node, _Mapping]]] = ..., all_tensors: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., sub_graph: _Optional[_Iterable[_Union[SubGraph, _Mapping]]] = ...) -> None: ...

class ModelConfig(_message.Message):
    __slots__ = ("enable_float16", "mode", "priority", "extensions")
    class ExtensionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    ENABLE_FLOAT16_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    enable_float16: bool
    mode: _enums_pb2.PerformanceMode
    priority: _enums_pb2.Priority
    extensions: _containers.ScalarMap[str, bytes]
    def __init__(self, enable_float16: bool = ..., mode: _Optional[_Union[_enums_pb2.PerformanceMode, str]] = ..., priority: _Optional[_Union[_enums_pb2.Priority, str]] = ..., extensions: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class IOTensor(_message.Message):
    __slots__ = ("name", "data_type", "dimensions", "format", "data", "padding")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    name: str
    data_type: _enums_pb2.DataType
    dimensions: _containers.RepeatedScalarFieldContainer[int]
    format: _enums_pb2.Format
    data: SharedBuffer
    padding: bytes
    def __init__(self, name: _Optional[str] = ..., data_type: _Optional[_Union[_enums_pb2.DataType, str]] = ..., dimensions: _Optional[_Iterable[int]] = ..., format: _Optional[_Union[_enums_pb2.Format, str]] = ..., data: _Optional[_Union[SharedBuffer, _Mapping]] = ..., padding: _Optional[bytes] = ...) -> None: ...
