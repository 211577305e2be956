from nnrt_hdi.v2 import enums_pb2 as _enums_pb2
from nnrt_hdi.v2 import error_pb2 as _error_pb2
from nnrt_hdi.v2 import prepared_model_pb2 as _prepared_model_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SequenceValue(_message.Message):
    __slots__ = ("number", "data_type", "dimensions", "data")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    number: int
    data_type: _enums_pb2.DataType
    dimensions: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, number: _Optional[int] = ..., data_type: _Optional[_Union[_enums_pb2.DataType, str]] = ..., dimensions: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class SequenceWrite(_message.Message):
    __slots__ = ("sequence_id", "operation", "copy_of", "values")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    COPY_OF_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    sequence_id: int
    operation: int
    copy_of: int
    values: _containers.RepeatedCompositeFieldContainer[SequenceValue]
    def __init__(self, sequence_id: _Optional[int] = ..., operation: _Optional[int] = ..., copy_of: _Optional[int] = ..., values: _Optional[_Iterable[_Union[SequenceValue, _Mapping]]] = ...) -> None: ...

class SequenceWritten(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SequenceRead(_message.Message):
    __slots__ = ("sequence_id", "numbers")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    sequence_id: int
    numbers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sequence_id: _Optional[int] = ..., numbers: _Optional[_Iterable[int]] = ...) -> None: ...

class LoopRequest(_message.Message):
    __slots__ = ("write", "runs", "max_steps", "max_bytes", "max_ms")
    WRITE_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    write: SequenceWrite
    runs: _containers.RepeatedCompositeFieldContainer[LoopRun]
    max_steps: int
    max_bytes: int
    max_ms: int
    def __init__(self, write: _Optional[_Union[SequenceWrite, _Mapping]] = ..., runs: _Optional[_Iterable[_Union[LoopRun, _Mapping]]] = ..., max_steps: _Optional[int] = ..., max_bytes: _Optional[int] = ..., max_ms: _Optional[int] = ...) -> None: ...

class LoopRun(_message.Message):
    __slots__ = ("values", "description", "delivered", "stop")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[SequenceValue]
    description: _prepared_model_pb2.RunDescription
    delivered: _containers.RepeatedScalarFieldContainer[int]
    stop: int
    def __init__(self, values: _Optional[_Iterable[_Union[SequenceValue, _Mapping]]] = ..., description: _Optional[_Union[_prepared_model_pb2.RunDescription, _Mapping]] = ..., delivered: _Optional[_Iterable[int]] = ..., stop: _Optional[int] = ...) -> None: ...

class LoopReply(_message.Message):
    __slots__ = ("delivered", "end")
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    delivered: _containers.RepeatedCompositeFieldContainer[DeliveredValues]
    end: LoopEnd
    def __init__(self, delivered: _Optional[_Iterable[_Union[DeliveredValues, _Mapping]]] = ..., end: _Optional[_Union[LoopEnd, _Mapping]] = ...) -> None: ...

class DeliveredValues(_message.Message):
    __slots__ = ("step", "run", "values")
    STEP_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    step: int
    run: int
    values: _containers.RepeatedCompositeFieldContainer[SequenceValue]
    def __init__(self, step: _Optional[int] = ..., run: _Optional[int] = ..., values: _Optional[_Iterable[_Union[SequenceValue, _Mapping]]] = ...) -> None: ...

class LoopEnd(_message.Message):
    __slots__ = ("reason", "steps", "bytes", "took_ns", "error")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STOPPED: _ClassVar[LoopEnd.Reason]
        STEPS: _ClassVar[LoopEnd.Reason]
        BYTES: _ClassVar[LoopEnd.Reason]
        TIME: _ClassVar[LoopEnd.Reason]
        ASKED: _ClassVar[LoopEnd.Reason]
        FAILED: _ClassVar[LoopEnd.Reason]
    STOPPED: LoopEnd.Reason
    STEPS: LoopEnd.Reason
    BYTES: LoopEnd.Reason
    TIME: LoopEnd.Reason
    ASKED: LoopEnd.Reason
    FAILED: LoopEnd.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TOOK_NS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    reason: LoopEnd.Reason
    steps: int
    bytes: int
    took_ns: int
    error: _error_pb2.ErrorDetail
    def __init__(self, reason: _Optional[_Union[LoopEnd.Reason, str]] = ..., steps: _Optional[int] = ..., bytes: _Optional[int] = ..., took_ns: _Optional[int] = ..., error: _Optional[_Union[_error_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class StopLoopRequest(_message.Message):
    __slots__ = ("sequence_id", "operation")
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    sequence_id: int
    operation: int
    def __init__(self, sequence_id: _Optional[int] = ..., operation: _Optional[int] = ...) -> None: ...

class StopLoopReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseSequenceRequest(_message.Message):
    __slots__ = ("sequence_id",)
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    sequence_id: int
    def __init__(self, sequence_id: _Optional[int] = ...) -> None: ...

class ReleaseSequenceReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
