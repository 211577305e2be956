from nnrt_hdi.v2 import enums_pb2 as _enums_pb2
from nnrt_hdi.v2 import error_pb2 as _error_pb2
from nnrt_hdi.v2 import model_pb2 as _model_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TensorPlace(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TENSOR_PLACE_INLINE: _ClassVar[TensorPlace]
    TENSOR_PLACE_REGION: _ClassVar[TensorPlace]
    TENSOR_PLACE_CHUNKS: _ClassVar[TensorPlace]
    TENSOR_PLACE_NOWHERE: _ClassVar[TensorPlace]
    TENSOR_PLACE_SEQUENCE: _ClassVar[TensorPlace]
TENSOR_PLACE_INLINE: TensorPlace
TENSOR_PLACE_REGION: TensorPlace
TENSOR_PLACE_CHUNKS: TensorPlace
TENSOR_PLACE_NOWHERE: TensorPlace
TENSOR_PLACE_SEQUENCE: TensorPlace

class RunRequest(_message.Message):
    __slots__ = ("model_id", "inputs", "outputs", "traceparent", "profile", "on_behalf_of")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    model_id: int
    inputs: _containers.RepeatedCompositeFieldContainer[_model_pb2.IOTensor]
    outputs: _containers.RepeatedCompositeFieldContainer[_model_pb2.IOTensor]
    traceparent: str
    profile: bool
    on_behalf_of: str
    def __init__(self, model_id: _Optional[int] = ..., inputs: _Optional[_Iterable[_Union[_model_pb2.IOTensor, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[_model_pb2.IOTensor, _Mapping]]] = ..., traceparent: _Optional[str] = ..., profile: bool = ..., on_behalf_of: _Optional[str] = ...) -> None: ...

class RunReply(_message.Message):
    __slots__ = ("outputs", "times", "operator_times")
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_TIMES_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedCompositeFieldContainer[_model_pb2.IOTensor]
    times: RunTimes
    operator_times: _containers.RepeatedCompositeFieldContainer[OperatorTime]
    def __init__(self, outputs: _Optional[_Iterable[_Union[_model_pb2.IOTensor, _Mapping]]] = ..., times: _Optional[_Union[RunTimes, _Mapping]] = ..., operator_times: _Optional[_Iterable[_Union[OperatorTime, _Mapping]]] = ...) -> None: ...

class RunPacket(_message.Message):
    __slots__ = ("padding", "frames", "chunk", "expanded_bytes")
    PADDING_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    EXPANDED_BYTES_FIELD_NUMBER: _ClassVar[int]
    padding: bytes
    frames: bytes
    chunk: bytes
    expanded_bytes: int
    def __init__(self, padding: _Optional[bytes] = ..., frames: _Optional[bytes] = ..., chunk: _Optional[bytes] = ..., expanded_bytes: _Optional[int] = ...) -> None: ...

class RunDescription(_message.Message):
    __slots__ = ("model_id", "inputs", "outputs", "traceparent", "profile", "on_behalf_of")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    model_id: int
    inputs: _containers.RepeatedCompositeFieldContainer[TensorDescription]
    outputs: _containers.RepeatedCompositeFieldContainer[TensorDescription]
    traceparent: str
    profile: bool
    on_behalf_of: str
    def __init__(self, model_id: _Optional[int] = ..., inputs: _Optional[_Iterable[_Union[TensorDescription, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[TensorDescription, _Mapping]]] = ..., traceparent: _Optional[str] = ..., profile: bool = ..., on_behalf_of: _Optional[str] = ...) -> None: ...

class TensorDescription(_message.Message):
    __slots__ = ("data_type", "dimensions", "place", "is_open", "value", "appends", "axis", "window")
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    IS_OPEN_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    APPENDS_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    data_type: _enums_pb2.DataType
    dimensions: _containers.RepeatedScalarFieldContainer[int]
    place: TensorPlace
    is_open: bool
    value: int
    appends: bool
    axis: int
    window: int
    def __init__(self, data_type: _Optional[_Union[_enums_pb2.DataType, str]] = ..., dimensions: _Optional[_Iterable[int]] = ..., place: _Optional[_Union[TensorPlace, str]] = ..., is_open: bool = ..., value: _Optional[int] = ..., appends: bool = ..., axis: _Optional[int] = ..., window: _Optional[int] = ...) -> None: ...

class RunOutcome(_message.Message):
    __slots__ = ("error", "outputs", "is_unknown", "kept", "operator_times")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    IS_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_TIMES_FIELD_NUMBER: _ClassVar[int]
    error: _error_pb2.ErrorDetail
    outputs: _containers.RepeatedCompositeFieldContainer[TensorDescription]
    is_unknown: bool
    kept: bool
    operator_times: _containers.RepeatedCompositeFieldContainer[OperatorTime]
    def __init__(self, error: _Optional[_Union[_error_pb2.ErrorDetail, _Mapping]] = ..., outputs: _Optional[_Iterable[_Union[TensorDescription, _Mapping]]] = ..., is_unknown: bool = ..., kept: bool = ..., operator_times: _Optional[_Iterable[_Union[OperatorTime, _Mapping]]] = ...) -> None: ...

class AwaitRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: int
    def __init__(self, run_id: _Optional[int] = ...) -> None: ...

class CancelRunsRequest(_message.Message):
    __slots__ = ("run_ids",)
    RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    run_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, run_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class CancelRunsReply(_message.Message):
    __slots__ = ("stopping_run_ids",)
    STOPPING_RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    stopping_run_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, stopping_run_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class OperatorTime(_message.Message):
    __slots__ = ("name", "operator", "began_ns", "took_ns", "is_besides")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    BEGAN_NS_FIELD_NUMBER: _ClassVar[int]
    TOOK_NS_FIELD_NUMBER: _ClassVar[int]
    IS_BESIDES_FIELD_NUMBER: _ClassVar[int]
    name: str
    operator: str
    began_ns: int
    took_ns: int
    is_besides: bool
    def __init__(self, name: _Optional[str] = ..., operator: _Optional[str] = ..., began_ns: _Optional[int] = ..., took_ns: _Optional[int] = ..., is_besides: bool = ...) -> None: ...

class RunTimes(_message.Message):
    __slots__ = ("queued_ns", "copied_in_ns", "computed_ns", "copied_out_ns", "served_ns", "received_at_ns")
    QUEUED_NS_FIELD_NUMBER: _ClassVar[int]
    COPIED_IN_NS_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_NS_FIELD_NUMBER: _ClassVar[int]
    COPIED_OUT_NS_FIELD_NUMBER: _ClassVar[int]
    SERVED_NS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_AT_NS_FIELD_NUMBER: _ClassVar[int]
    queued_ns: int
    copied_in_ns: int
    computed_ns: int
    copied_out_ns: int
    served_ns: int
    received_at_ns: int
    def __init__(self, queued_ns: _Optional[int] = ..., copied_in_ns: _Optional[int] = ..., computed_ns: _Optional[int] = ..., copied_out_ns: _Optional[int] = ..., served_ns: _Optional[int] = ..., received_at_ns: _Optional[int] = ...) -> None: ...

class ExportModelCacheRequest(_message.Message):
    __slots__ = ("model_id",)
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    model_id: int
    def __init__(self, model_id: _Optional[int] = ...) -> None: ...

class ExportModelCacheReply(_message.Message):
    __slots__ = ("buffers",)
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    buffers: _containers.RepeatedCompositeFieldContainer[_model_pb2.SharedBuffer]
    def __init__(self, buffers: _Optional[_Iterable[_Union[_model_pb2.SharedBuffer, _Mapping]]] = ...) -> None: ...

class GetInputDimRangesRequest(_message.Message):
    __slots__ = ("model_id",)
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    model_id: int
    def __init__(self, model_id: _Optional[int] = ...) -> None: ...

class GetInputDimRangesReply(_message.Message):
    __slots__ = ("inputs",)
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    inputs: _containers.RepeatedCompositeFieldContainer[DimRange]
    def __init__(self, inputs: _Optional[_Iterable[_Union[DimRange, _Mapping]]] = ...) -> None: ...

class DimRange(_message.Message):
    __slots__ = ("min_dims", "max_dims")
    MIN_DIMS_FIELD_NUMBER: _ClassVar[int]
    MAX_DIMS_FIELD_NUMBER: _ClassVar[int]
    min_dims: _containers.RepeatedScalarFieldContainer[int]
    max_dims: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, min_dims: _Optional[_Iterable[int]] = ..., max_dims: _Optional[_Iterable[int]] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("model_id", "request_id")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    model_id: int
    request_id: bytes
    def __init__(self, model_id: _Optional[int] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class ReleaseReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
