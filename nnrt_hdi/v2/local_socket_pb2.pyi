from nnrt_hdi.v2 import error_pb2 as _error_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LocalRequest(_message.Message):
    __slots__ = ("released_buffers", "attach", "share", "map")
    RELEASED_BUFFERS_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    released_buffers: _containers.RepeatedScalarFieldContainer[int]
    attach: Attach
    share: ShareBuffer
    map: MapBuffer
    def __init__(self, released_buffers: _Optional[_Iterable[int]] = ..., attach: _Optional[_Union[Attach, _Mapping]] = ..., share: _Optional[_Union[ShareBuffer, _Mapping]] = ..., map: _Optional[_Union[MapBuffer, _Mapping]] = ...) -> None: ...

class LocalReply(_message.Message):
    __slots__ = ("error", "buffer_id", "length", "done")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    BUFFER_ID_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    error: _error_pb2.ErrorDetail
    buffer_id: int
    length: int
    done: bool
    def __init__(self, error: _Optional[_Union[_error_pb2.ErrorDetail, _Mapping]] = ..., buffer_id: _Optional[int] = ..., length: _Optional[int] = ..., done: bool = ...) -> None: ...

class Attach(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: bytes
    def __init__(self, session_id: _Optional[bytes] = ...) -> None: ...

class ShareBuffer(_message.Message):
    __slots__ = ("length", "buffer_id", "is_file")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    BUFFER_ID_FIELD_NUMBER: _ClassVar[int]
    IS_FILE_FIELD_NUMBER: _ClassVar[int]
    length: int
    buffer_id: int
    is_file: bool
    def __init__(self, length: _Optional[int] = ..., buffer_id: _Optional[int] = ..., is_file: bool = ...) -> None: ...

class MapBuffer(_message.Message):
    __slots__ = ("buffer_id",)
    BUFFER_ID_FIELD_NUMBER: _ClassVar[int]
    buffer_id: int
    def __init__(self, buffer_id: _Optional[int] = ...) -> None: ...
