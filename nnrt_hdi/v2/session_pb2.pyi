from nnrt_hdi.v2 import enums_pb2 as _enums_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionRequest(_message.Message):
    __slots__ = ("hello", "beat", "goodbye")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    beat: Beat
    goodbye: Goodbye
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ...) -> None: ...

class SessionReply(_message.Message):
    __slots__ = ("welcome", "beat")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    beat: Beat
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_minor", "features", "client_name", "user")
    PROTOCOL_MINOR_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    protocol_minor: int
    features: _containers.RepeatedScalarFieldContainer[str]
    client_name: str
    user: str
    def __init__(self, protocol_minor: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., client_name: _Optional[str] = ..., user: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("session_id", "instance_id", "protocol_minor", "features", "hdi_major", "hdi_minor", "device", "limits", "heartbeat_timeout_ms", "lease_ms", "local_socket")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MINOR_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    HDI_MAJOR_FIELD_NUMBER: _ClassVar[int]
    HDI_MINOR_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_SOCKET_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    instance_id: bytes
    protocol_minor: int
    features: _containers.RepeatedScalarFieldContainer[str]
    hdi_major: int
    hdi_minor: int
    device: DeviceInfo
    limits: Limits
    heartbeat_timeout_ms: int
    lease_ms: int
    local_socket: bytes
    def __init__(self, session_id: _Optional[bytes] = ..., instance_id: _Optional[bytes] = ..., protocol_minor: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., hdi_major: _Optional[int] = ..., hdi_minor: _Optional[int] = ..., device: _Optional[_Union[DeviceInfo, _Mapping]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., heartbeat_timeout_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., local_socket: _Optional[bytes] = ...) -> None: ...

class DeviceInfo(_message.Message):
    __slots__ = ("device_name", "vendor_name", "device_type", "capabilities", "backend_name", "backend_version")
    DEVICE_NAME_FIELD_NUMBER: _ClassVar[int]
    VENDOR_NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    BACKEND_NAME_FIELD_NUMBER: _ClassVar[int]
    BACKEND_VERSION_FIELD_NUMBER: _ClassVar[int]
    device_name: str
    vendor_name: str
    device_type: _enums_pb2.DeviceType
    capabilities: Capabilities
    backend_name: str
    backend_version: str
    def __init__(self, device_name: _Optional[str] = ..., vendor_name: _Optional[str] = ..., device_type: _Optional[_Union[_enums_pb2.DeviceType, str]] = ..., capabilities: _Optional[_Union[Capabilities, _Mapping]] = ..., backend_name: _Optional[str] = ..., backend_version: _Optional[str] = ...) -> None: ...

class Capabilities(_message.Message):
    __slots__ = ("float16_precision", "performance_mode", "priority", "dynamic_input", "model_cache", "program_formats", "profiling")
    FLOAT16_PRECISION_FIELD_NUMBER: _ClassVar[int]
    PERFORMANCE_MODE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DYNAMIC_INPUT_FIELD_NUMBER: _ClassVar[int]
    MODEL_CACHE_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FORMATS_FIELD_NUMBER: _ClassVar[int]
    PROFILING_FIELD_NUMBER: _ClassVar[int]
    float16_precision: bool
    performance_mode: bool
    priority: bool
    dynamic_input: bool
    model_cache: bool
    program_formats: _containers.RepeatedScalarFieldContainer[str]
    profiling: bool
    def __init__(self, float16_precision: bool = ..., performance_mode: bool = ..., priority: bool = ..., dynamic_input: bool = ..., model_cache: bool = ..., program_formats: _Optional[_Iterable[str]] = ..., profiling: bool = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("message_bytes", "session_bytes", "session_models", "session_streams", "tensor_bytes")
    MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SESSION_BYTES_FIELD_NUMBER: _ClassVar[int]
    SESSION_MODELS_FIELD_NUMBER: _ClassVar[int]
    SESSION_STREAMS_FIELD_NUMBER: _ClassVar[int]
    TENSOR_BYTES_FIELD_NUMBER: _ClassVar[int]
    message_bytes: int
    session_bytes: int
    session_models: int
    session_streams: int
    tensor_bytes: int
    def __init__(self, message_bytes: _Optional[int] = ..., session_bytes: _Optional[int] = ..., session_models: _Optional[int] = ..., session_streams: _Optional[int] = ..., tensor_bytes: _Optional[int] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("sequence", "state", "clock_ns")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CLOCK_NS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    state: DeviceState
    clock_ns: int
    def __init__(self, sequence: _Optional[int] = ..., state: _Optional[_Union[DeviceState, _Mapping]] = ..., clock_ns: _Optional[int] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeviceState(_message.Message):
    __slots__ = ("status", "draining", "running", "queued", "held_bytes", "sessions", "out", "telemetry")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    OUT_FIELD_NUMBER: _ClassVar[int]
    TELEMETRY_FIELD_NUMBER: _ClassVar[int]
    status: _enums_pb2.DeviceStatus
    draining: bool
    running: int
    queued: int
    held_bytes: int
    sessions: int
    out: str
    telemetry: Telemetry
    def __init__(self, status: _Optional[_Union[_enums_pb2.DeviceStatus, str]] = ..., draining: bool = ..., running: _Optional[int] = ..., queued: _Optional[int] = ..., held_bytes: _Optional[int] = ..., sessions: _Optional[int] = ..., out: _Optional[str] = ..., telemetry: _Optional[_Union[Telemetry, _Mapping]] = ...) -> None: ...

class Telemetry(_message.Message):
    __slots__ = ("temperature_celsius", "power_watts", "memory_used_bytes", "memory_total_bytes", "clock_hertz", "utilization")
    TEMPERATURE_CELSIUS_FIELD_NUMBER: _ClassVar[int]
    POWER_WATTS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    CLOCK_HERTZ_FIELD_NUMBER: _ClassVar[int]
    UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    temperature_celsius: float
    power_watts: float
    memory_used_bytes: int
    memory_total_bytes: int
    clock_hertz: float
    utilization: float
    def __init__(self, temperature_celsius: _Optional[float] = ..., power_watts: _Optional[float] = ..., memory_used_bytes: _Optional[int] = ..., memory_total_bytes: _Optional[int] = ..., clock_hertz: _Optional[float] = ..., utilization: _Optional[float] = ...) -> None: ...
