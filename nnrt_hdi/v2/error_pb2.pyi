from nnrt_hdi.v2 import enums_pb2 as _enums_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorDetail(_message.Message):
    __slots__ = ("code", "message", "place", "request_id")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    code: _enums_pb2.ReturnCode
    message: str
    place: str
    request_id: str
    def __init__(self, code: _Optional[_Union[_enums_pb2.ReturnCode, str]] = ..., message: _Optional[str] = ..., place: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...
