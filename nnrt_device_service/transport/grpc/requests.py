"""Requests, parsed in the thread of their call, and only if they are not too long and don't have too many parts."""

from collections.abc import Callable, Generator, Iterator
from typing import Any

from google.protobuf.message import DecodeError, Message

from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.runs.replies import COUNTED_BYTES
from nnrt_hdi.errors import InvalidParameter, OutOfMemory
from nnrt_hdi.v2 import device_pb2, prepared_model_pb2, sequence_pb2
from nnrt_hdi.wire.counts import require_moderate

# Most bytes of small requests, such as Hello, beats and ids, and of requests of other services.
CONTROL_BYTES = 16 * 1024
# Most bytes of graphs; their larger constants are uploaded apart.
GRAPH_BYTES = 16 << 20

_GRAPHS: dict[str, type[Message]] = {
    "NnrtDevice/GetSupportedOperation": device_pb2.GetSupportedOperationRequest,
    "NnrtDevice/PrepareModel": device_pb2.PrepareModelRequest,
}
# Requests that may be as long as gRPC allows.
_DATA: dict[str, type[Message]] = {
    "NnrtDevice/PrepareModelFromModelCache": device_pb2.PrepareFromBuffersRequest,
    "NnrtDevice/PrepareOfflineModel": device_pb2.PrepareFromBuffersRequest,
    "NnrtDevice/UploadConstants": device_pb2.ConstantChunk,
    "NnrtDevice/WriteBuffer": device_pb2.BufferChunk,
    "PreparedModel/Run": prepared_model_pb2.RunRequest,
    "PreparedModel/RunStream": prepared_model_pb2.RunPacket,
    "Sequences/Loop": sequence_pb2.LoopRequest,
    "Sequences/Write": sequence_pb2.SequenceWrite,
}


class RequestReader:
    """Parser of the requests of one method."""

    def __init__(self, method: str, parse: Callable[[bytes], Any]) -> None:
        self._method = method
        self._parse = parse
        self._kind = _GRAPHS.get(method) or _DATA.get(method)
        self._most_bytes: int | None = CONTROL_BYTES
        if method in _GRAPHS:
            self._most_bytes = GRAPH_BYTES
        elif method in _DATA:  # gRPC has a limit itself.
            self._most_bytes = None

    def read_all(self, requests: Iterator[bytes], budget: MemoryBudget | None) -> Generator[Any, None, None]:
        """Yield the messages, each counted in the budget until the next one is asked for.

        Raises what `read` raises, and OutOfMemory if a message doesn't fit into the budget.
        """
        for data in requests:
            if budget is None or len(data) < COUNTED_BYTES:
                yield self.read(data)
            else:
                with budget.reserved(len(data)):
                    yield self.read(data)
            del data  # It must not stay in memory until the next request arrives.

    def read(self, data: bytes) -> Any:
        """Return the parsed message.

        Raises OutOfMemory if it is too long, and InvalidParameter if it can't be parsed or has too many parts.
        """
        if self._most_bytes is not None and len(data) > self._most_bytes:
            raise OutOfMemory(f"the request has {len(data)} bytes; use at most {self._most_bytes}", place=self._method)
        if self._kind is not None:
            require_moderate(data, self._kind)
        try:
            return self._parse(data)
        except DecodeError as error:
            raise InvalidParameter(f"the request can't be decoded: {error}", place=self._method) from error
