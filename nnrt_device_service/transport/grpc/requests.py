"""Requests from bytes to messages, in the thread of their call: what is too long or has too many parts isn't parsed."""

from collections.abc import Callable, Generator, Iterator
from typing import Any

from google.protobuf.message import DecodeError, Message

from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.runs.replies import COUNTED_BYTES
from nnrt_hdi.errors import InvalidParameter, OutOfMemory
from nnrt_hdi.v2 import device_pb2, prepared_model_pb2
from nnrt_hdi.wire.counts import require_moderate

# Hello, beats, numbers of models and runs; and what other services than ours are asked.
CONTROL_BYTES = 16 * 1024
# Graphs, whose larger constants travel by themselves.
GRAPH_BYTES = 16 << 20

_GRAPHS: dict[str, type[Message]] = {
    "NnrtDevice/GetSupportedOperation": device_pb2.GetSupportedOperationRequest,
    "NnrtDevice/PrepareModel": device_pb2.PrepareModelRequest,
}
# What may have the length of any message.
_DATA: dict[str, type[Message]] = {
    "NnrtDevice/PrepareModelFromModelCache": device_pb2.PrepareFromBuffersRequest,
    "NnrtDevice/PrepareOfflineModel": device_pb2.PrepareFromBuffersRequest,
    "NnrtDevice/UploadConstants": device_pb2.ConstantChunk,
    "NnrtDevice/WriteBuffer": device_pb2.BufferChunk,
    "PreparedModel/Run": prepared_model_pb2.RunRequest,
    "PreparedModel/RunStream": prepared_model_pb2.RunPacket,
}


class RequestReader:
    """Reads the requests of one method."""

    def __init__(self, method: str, parse: Callable[[bytes], Any]) -> None:
        self._method = method
        self._parse = parse
        self._kind = _GRAPHS.get(method) or _DATA.get(method)
        self._most_bytes: int | None = CONTROL_BYTES
        if method in _GRAPHS:
            self._most_bytes = GRAPH_BYTES
        elif method in _DATA:  # As gRPC has been told.
            self._most_bytes = None

    def each(self, requests: Iterator[bytes], budget: MemoryBudget | None) -> Generator[Any, None, None]:
        """The messages, each counted in a budget until the next one is asked for. Raises as `read`, and OutOfMemory
        where one doesn't fit."""
        for data in requests:
            if budget is None or len(data) < COUNTED_BYTES:
                yield self.read(data)
            else:
                with budget.reserved(len(data)):
                    yield self.read(data)
            del data  # What was asked must not live until more is.

    def read(self, data: bytes) -> Any:
        """The message. Raises OutOfMemory for one that is too long, InvalidParameter for what is none, or has too many
        parts."""
        if self._most_bytes is not None and len(data) > self._most_bytes:
            raise OutOfMemory(f"the request has {len(data)} bytes; use at most {self._most_bytes}", place=self._method)
        if self._kind is not None:
            require_moderate(data, self._kind)
        try:
            return self._parse(data)
        except DecodeError as error:
            raise InvalidParameter(f"the request can't be decoded: {error}", place=self._method) from error
