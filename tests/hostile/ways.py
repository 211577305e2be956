"""The ways on which runs, planned ones too, travel into a daemon."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from local_side import Side, side_of
from raw_client import Conversation, RawClient

from nnrt_hdi import wire
from nnrt_hdi.limits import LOCAL_PACKET_BYTES
from nnrt_hdi.v2 import local_socket_pb2, prepared_model_pb2


class Way(Protocol):
    """A connection that runs travel on."""

    def ask(self, request: Any) -> Any:
        """The reply to a RunRequest."""

    def ask_planned(self, packet: bytes) -> Any:
        """The reply to a planned request: a planned one as bytes, else a RunReply, None where the connection ended."""


class OnLocalSocket:
    def __init__(self, side: Side) -> None:
        self.side = side

    def ask(self, request: Any) -> Any:
        return self.side.ask(local_socket_pb2.LocalRequest(run=request)).run

    def ask_planned(self, packet: bytes) -> Any:
        self.side.send(packet)
        data = self.side.socket.recv(LOCAL_PACKET_BYTES)
        if not data or data[0] == 0:
            return data or None
        reply = local_socket_pb2.LocalReply.FromString(data)
        if reply.HasField("error"):
            raise wire.error_from_detail(reply.error)
        return reply.run


class OnStream:
    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation

    def ask(self, request: Any) -> Any:
        self.conversation.send(request)
        return self.conversation.receive()

    def ask_planned(self, packet: bytes) -> Any:
        reply = self.ask(prepared_model_pb2.RunRequest(planned=packet))
        return reply.planned or reply


WAYS = ("local socket", "stream")


@contextmanager
def way_of(client: RawClient, kind: str) -> Iterator[Way]:
    if kind == "local socket":
        with side_of(client) as side:
            yield OnLocalSocket(side)
    else:
        conversation = client.converse("PreparedModel.RunStream")
        try:
            yield OnStream(conversation)
        finally:
            conversation.cancel()
