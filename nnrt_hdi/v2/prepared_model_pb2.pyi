from nnrt_hdi.v2 import error_pb2 as _error_pb2
from nnrt_hdi.v2 import model_pb2 as _model_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunRequest(_message.Message):
    __slots__ = ("model_id", "inputs", "outputs", "timeout_ms", "run_id", "chunk", "takes_chunks", "expanded_bytes", "unwanted_outputs", "traceparent", "profile", "plan", "planned")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    TAKES_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    EXPANDED_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNWANTED_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PLANNED_FIELD_NUMBER: _ClassVar[int]
    model_id: int
    inputs: _containers.RepeatedCompositeFieldContainer[_model_pb2.IOTensor]
    outputs: _containers.RepeatedCompositeFieldContainer[_model_pb2.IOTensor]
    timeout_ms: int
    run_id: int
    chunk: bytes
    takes_chunks: bool
    expanded_bytes: int
    unwanted_outputs: _containers.RepeatedScalarFieldContainer[int]
    traceparent: str
    profile: bool
    plan: int
    planned: bytes
    def __init__(self, model_id: _Optional[int] = ..., inputs: _Optional[_Iterable[_Union[_model_pb2.IOTensor, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[_model_pb2.IOTensor, _Mapping]]] = ..., timeout_ms: _Optional[int] = ..., run_id: _Optional[int] = ..., chunk: _Optional[bytes] = ..., takes_chunks: bool = ..., expanded_bytes: _Optional[int] = ..., unwanted_outputs: _Optional[_Iterable[int]] = ..., traceparent: _Optional[str] = ..., profile: bool = ..., plan: _Optional[int] = ..., planned: _Optional[bytes] = ...) -> None: ...

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

class RunReply(_message.Message):
    __slots__ = ("error", "outputs", "chunk", "times", "kept", "expanded_bytes", "run_id", "operator_times", "plan", "planned")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    EXPANDED_BYTES_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_TIMES_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PLANNED_FIELD_NUMBER: _ClassVar[int]
    error: _error_pb2.ErrorDetail
    outputs: _containers.RepeatedCompositeFieldContainer[_model_pb2.IOTensor]
    chunk: bytes
    times: RunTimes
    kept: bool
    expanded_bytes: int
    run_id: int
    operator_times: _containers.RepeatedCompositeFieldContainer[OperatorTime]
    plan: int
    planned: bytes
    def __init__(self, error: _Optional[_Union[_error_pb2.ErrorDetail, _Mapping]] = ..., outputs: _Optional[_Iterable[_Union[_model_pb2.IOTensor, _Mapping]]] = ..., chunk: _Optional[bytes] = ..., times: _Optional[_Union[RunTimes, _Mapping]] = ..., kept: bool = ..., expanded_bytes: _Optional[int] = ..., run_id: _Optional[int] = ..., operator_times: _Optional[_Iterable[_Union[OperatorTime, _Mapping]]] = ..., plan: _Optional[int] = ..., planned: _Optional[bytes] = ...) -> None: ...

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
