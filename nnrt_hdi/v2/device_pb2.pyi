from nnrt_hdi.v2 import enums_pb2 as _enums_pb2
from nnrt_hdi.v2 import model_pb2 as _model_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetDeviceStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetDeviceStatusReply(_message.Message):
    __slots__ = ("status", "canary")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    status: _enums_pb2.DeviceStatus
    canary: Canary
    def __init__(self, status: _Optional[_Union[_enums_pb2.DeviceStatus, str]] = ..., canary: _Optional[_Union[Canary, _Mapping]] = ...) -> None: ...

class Canary(_message.Message):
    __slots__ = ("is_out", "why", "for_ms", "runs", "wrong", "late", "failed", "last_ns", "usual_ns")
    IS_OUT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    FOR_MS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    WRONG_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LAST_NS_FIELD_NUMBER: _ClassVar[int]
    USUAL_NS_FIELD_NUMBER: _ClassVar[int]
    is_out: bool
    why: str
    for_ms: int
    runs: int
    wrong: int
    late: int
    failed: int
    last_ns: int
    usual_ns: int
    def __init__(self, is_out: bool = ..., why: _Optional[str] = ..., for_ms: _Optional[int] = ..., runs: _Optional[int] = ..., wrong: _Optional[int] = ..., late: _Optional[int] = ..., failed: _Optional[int] = ..., last_ns: _Optional[int] = ..., usual_ns: _Optional[int] = ...) -> None: ...

class GetCountersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCountersReply(_message.Message):
    __slots__ = ("uptime_ms", "identities", "load")
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    IDENTITIES_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    uptime_ms: int
    identities: _containers.RepeatedCompositeFieldContainer[IdentityCounters]
    load: DeviceLoad
    def __init__(self, uptime_ms: _Optional[int] = ..., identities: _Optional[_Iterable[_Union[IdentityCounters, _Mapping]]] = ..., load: _Optional[_Union[DeviceLoad, _Mapping]] = ...) -> None: ...

class DeviceLoad(_message.Message):
    __slots__ = ("slots", "busy_ns", "running", "queued", "queued_limit", "sessions", "sessions_limit", "held_bytes", "held_limit_bytes", "run_bytes", "run_limit_bytes", "batches", "residency")
    class HeldBytesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    BUSY_NS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    QUEUED_LIMIT_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_LIMIT_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    HELD_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RUN_BYTES_FIELD_NUMBER: _ClassVar[int]
    RUN_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    RESIDENCY_FIELD_NUMBER: _ClassVar[int]
    slots: int
    busy_ns: int
    running: int
    queued: int
    queued_limit: int
    sessions: int
    sessions_limit: int
    held_bytes: _containers.ScalarMap[str, int]
    held_limit_bytes: int
    run_bytes: int
    run_limit_bytes: int
    batches: Batches
    residency: Residency
    def __init__(self, slots: _Optional[int] = ..., busy_ns: _Optional[int] = ..., running: _Optional[int] = ..., queued: _Optional[int] = ..., queued_limit: _Optional[int] = ..., sessions: _Optional[int] = ..., sessions_limit: _Optional[int] = ..., held_bytes: _Optional[_Mapping[str, int]] = ..., held_limit_bytes: _Optional[int] = ..., run_bytes: _Optional[int] = ..., run_limit_bytes: _Optional[int] = ..., batches: _Optional[_Union[Batches, _Mapping]] = ..., residency: _Optional[_Union[Residency, _Mapping]] = ...) -> None: ...

class Residency(_message.Message):
    __slots__ = ("models", "bytes", "limit_bytes", "evicted", "restored", "waits")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    models: int
    bytes: int
    limit_bytes: int
    evicted: int
    restored: int
    waits: int
    def __init__(self, models: _Optional[int] = ..., bytes: _Optional[int] = ..., limit_bytes: _Optional[int] = ..., evicted: _Optional[int] = ..., restored: _Optional[int] = ..., waits: _Optional[int] = ...) -> None: ...

class Batches(_message.Message):
    __slots__ = ("runs", "rows", "counts")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    runs: int
    rows: int
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, runs: _Optional[int] = ..., rows: _Optional[int] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class Durations(_message.Message):
    __slots__ = ("total_ns", "counts")
    TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    total_ns: int
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, total_ns: _Optional[int] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class IdentityCounters(_message.Message):
    __slots__ = ("identity", "sessions", "connections", "held_bytes", "opened_sessions", "runs", "run_ns", "models", "compile_ns", "errors", "in_bytes", "out_bytes", "queued", "copied", "computed", "served")
    class RunsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class ModelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class ErrorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    OPENED_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    RUN_NS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    COMPILE_NS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    IN_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    COPIED_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    identity: str
    sessions: int
    connections: int
    held_bytes: int
    opened_sessions: int
    runs: _containers.ScalarMap[str, int]
    run_ns: int
    models: _containers.ScalarMap[str, int]
    compile_ns: int
    errors: _containers.ScalarMap[str, int]
    in_bytes: int
    out_bytes: int
    queued: Durations
    copied: Durations
    computed: Durations
    served: Durations
    def __init__(self, identity: _Optional[str] = ..., sessions: _Optional[int] = ..., connections: _Optional[int] = ..., held_bytes: _Optional[int] = ..., opened_sessions: _Optional[int] = ..., runs: _Optional[_Mapping[str, int]] = ..., run_ns: _Optional[int] = ..., models: _Optional[_Mapping[str, int]] = ..., compile_ns: _Optional[int] = ..., errors: _Optional[_Mapping[str, int]] = ..., in_bytes: _Optional[int] = ..., out_bytes: _Optional[int] = ..., queued: _Optional[_Union[Durations, _Mapping]] = ..., copied: _Optional[_Union[Durations, _Mapping]] = ..., computed: _Optional[_Union[Durations, _Mapping]] = ..., served: _Optional[_Union[Durations, _Mapping]] = ...) -> None: ...

class GetSupportedOperationRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: _model_pb2.Model
    def __init__(self, model: _Optional[_Union[_model_pb2.Model, _Mapping]] = ...) -> None: ...

class GetSupportedOperationReply(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeSupport]
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeSupport, _Mapping]]] = ...) -> None: ...

class NodeSupport(_message.Message):
    __slots__ = ("supported", "reason", "note")
    SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    supported: bool
    reason: str
    note: str
    def __init__(self, supported: bool = ..., reason: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class Batching(_message.Message):
    __slots__ = ("max_size", "max_delay_us")
    MAX_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_DELAY_US_FIELD_NUMBER: _ClassVar[int]
    max_size: int
    max_delay_us: int
    def __init__(self, max_size: _Optional[int] = ..., max_delay_us: _Optional[int] = ...) -> None: ...

class PrepareModelRequest(_message.Message):
    __slots__ = ("model", "config", "request_id", "batching", "pin")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BATCHING_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    model: _model_pb2.Model
    config: _model_pb2.ModelConfig
    request_id: bytes
    batching: Batching
    pin: bool
    def __init__(self, model: _Optional[_Union[_model_pb2.Model, _Mapping]] = ..., config: _Optional[_Union[_model_pb2.ModelConfig, _Mapping]] = ..., request_id: _Optional[bytes] = ..., batching: _Optional[_Union[Batching, _Mapping]] = ..., pin: bool = ...) -> None: ...

class PrepareFromBuffersRequest(_message.Message):
    __slots__ = ("buffers", "config", "request_id", "program_format", "batching", "pin")
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FORMAT_FIELD_NUMBER: _ClassVar[int]
    BATCHING_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    buffers: _containers.RepeatedCompositeFieldContainer[_model_pb2.SharedBuffer]
    config: _model_pb2.ModelConfig
    request_id: bytes
    program_format: str
    batching: Batching
    pin: bool
    def __init__(self, buffers: _Optional[_Iterable[_Union[_model_pb2.SharedBuffer, _Mapping]]] = ..., config: _Optional[_Union[_model_pb2.ModelConfig, _Mapping]] = ..., request_id: _Optional[bytes] = ..., program_format: _Optional[str] = ..., batching: _Optional[_Union[Batching, _Mapping]] = ..., pin: bool = ...) -> None: ...

class PrepareModelReply(_message.Message):
    __slots__ = ("progress", "missing", "prepared")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    progress: Progress
    missing: MissingConstants
    prepared: PreparedModelInfo
    def __init__(self, progress: _Optional[_Union[Progress, _Mapping]] = ..., missing: _Optional[_Union[MissingConstants, _Mapping]] = ..., prepared: _Optional[_Union[PreparedModelInfo, _Mapping]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("stage", "fraction")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    stage: str
    fraction: float
    def __init__(self, stage: _Optional[str] = ..., fraction: _Optional[float] = ...) -> None: ...

class MissingConstants(_message.Message):
    __slots__ = ("constants",)
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    constants: _containers.RepeatedCompositeFieldContainer[MissingConstant]
    def __init__(self, constants: _Optional[_Iterable[_Union[MissingConstant, _Mapping]]] = ...) -> None: ...

class MissingConstant(_message.Message):
    __slots__ = ("sha256", "received_bytes")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    received_bytes: int
    def __init__(self, sha256: _Optional[bytes] = ..., received_bytes: _Optional[int] = ...) -> None: ...

class PreparedModelInfo(_message.Message):
    __slots__ = ("model_id", "inputs", "outputs", "origin", "notes")
    class Origin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        COMPILED: _ClassVar[PreparedModelInfo.Origin]
        RESTORED: _ClassVar[PreparedModelInfo.Origin]
        STORED: _ClassVar[PreparedModelInfo.Origin]
        SHARED: _ClassVar[PreparedModelInfo.Origin]
    COMPILED: PreparedModelInfo.Origin
    RESTORED: PreparedModelInfo.Origin
    STORED: PreparedModelInfo.Origin
    SHARED: PreparedModelInfo.Origin
    class NotesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    model_id: int
    inputs: _containers.RepeatedCompositeFieldContainer[_model_pb2.Tensor]
    outputs: _containers.RepeatedCompositeFieldContainer[_model_pb2.Tensor]
    origin: PreparedModelInfo.Origin
    notes: _containers.ScalarMap[str, int]
    def __init__(self, model_id: _Optional[int] = ..., inputs: _Optional[_Iterable[_Union[_model_pb2.Tensor, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[_model_pb2.Tensor, _Mapping]]] = ..., origin: _Optional[_Union[PreparedModelInfo.Origin, str]] = ..., notes: _Optional[_Mapping[str, int]] = ...) -> None: ...

class ConstantChunk(_message.Message):
    __slots__ = ("sha256", "size_bytes", "offset", "data", "expanded_bytes", "more", "region")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    EXPANDED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    size_bytes: int
    offset: int
    data: bytes
    expanded_bytes: int
    more: _containers.RepeatedCompositeFieldContainer[ConstantChunk]
    region: _model_pb2.BufferRegion
    def __init__(self, sha256: _Optional[bytes] = ..., size_bytes: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., expanded_bytes: _Optional[int] = ..., more: _Optional[_Iterable[_Union[ConstantChunk, _Mapping]]] = ..., region: _Optional[_Union[_model_pb2.BufferRegion, _Mapping]] = ...) -> None: ...

class UploadConstantsReply(_message.Message):
    __slots__ = ("completed",)
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    completed: int
    def __init__(self, completed: _Optional[int] = ...) -> None: ...

class AllocateBufferRequest(_message.Message):
    __slots__ = ("length",)
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    length: int
    def __init__(self, length: _Optional[int] = ...) -> None: ...

class AllocateBufferReply(_message.Message):
    __slots__ = ("buffer", "is_on_device")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    IS_ON_DEVICE_FIELD_NUMBER: _ClassVar[int]
    buffer: _model_pb2.SharedBuffer
    is_on_device: bool
    def __init__(self, buffer: _Optional[_Union[_model_pb2.SharedBuffer, _Mapping]] = ..., is_on_device: bool = ...) -> None: ...

class ReleaseBufferRequest(_message.Message):
    __slots__ = ("buffer_id",)
    BUFFER_ID_FIELD_NUMBER: _ClassVar[int]
    buffer_id: int
    def __init__(self, buffer_id: _Optional[int] = ...) -> None: ...

class ReleaseBufferReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BufferChunk(_message.Message):
    __slots__ = ("buffer_id", "offset", "data")
    BUFFER_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    buffer_id: int
    offset: int
    data: bytes
    def __init__(self, buffer_id: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class WriteBufferReply(_message.Message):
    __slots__ = ("written_bytes",)
    WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    written_bytes: int
    def __init__(self, written_bytes: _Optional[int] = ...) -> None: ...
