"""Connection of a client by HTTP: one that owes something for too long is closed."""

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# Option of a socket that is closed without sending what it still has.
_AT_ONCE = struct.pack("ii", 1, 0)


class Connection(H11Protocol):
    """Connection that is closed if the client sends no request, or reads no response, for `read_s` seconds.

    `read_body` bounds the time of a body.
    """

    def __init__(self, *arguments: Any, read_s: float, most: int, **options: Any) -> None:
        """Create it. Beyond `most` connections it is closed at once. The others are uvicorn's arguments."""
        super().__init__(*arguments, **options)
        self._read_s = read_s
        self._most = most
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to look after the client."""
        super().connection_made(transport)
        # asyncio does so only for sockets of its own: a response is written in several pieces.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if (connection := transport.get_extra_info("ssl_object")) is not None:
            self.app_state = {**self.app_state, "certificate": _common_name(connection.getpeercert())}
        if len(self.connections) > self._most:
            self.transport.abort()
        else:
            self._look(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Look after the client no more."""
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, as JSON like all errors."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": msg}).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _look(self, before: object) -> None:
        """Close the connection if the client still owes what it owed before."""
        owed = self._owed()
        if owed is not None and owed == before:
            if self.transport.get_write_buffer_size():
                # So that the kernel keeps nothing for it either.
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self.transport.abort()
        else:
            self._watch = self.loop.call_later(self._read_s, self._look, owed)

    def _owed(self) -> object:
        """Return a value that stands for what the client owes, None if it owes nothing."""
        if unsent := self.transport.get_write_buffer_size():
            return unsent
        if self.cycle is None or self.cycle.response_complete:
            return ("the request after", self.cycle)
        return None


def _common_name(certificate: Mapping[str, Any] | None) -> str:
    """Return the common name in a certificate as OpenSSL tells it, empty without one."""
    parts = (certificate or {}).get("subject", ())
    return next((value for part in parts for name, value in part if name == "commonName"), "")
