"""HTTP as hostile clients speak it: bytes on a socket, and any bodies."""

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

DEADLINE_S = 30.0


class Answer(NamedTuple):
    """Response of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """Message of a response that must be an error."""
        assert self.status >= 400, self
        document = self.json
        assert list(document) == ["error"]
        assert isinstance(document["error"], str)
        return document["error"]


def call(address: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
    """Send a request, whose body is bytes or becomes JSON."""
    connection = http.client.HTTPConnection(address, timeout=DEADLINE_S)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request(method, path, data, dict(headers or {}))
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as connection:
        yield connection


def answered(connection: socket.socket) -> Answer:
    """Read a response from a connection."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
