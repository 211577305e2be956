"""Control protocol between commands and the supervisor: lines of JSON over a Unix socket in the state directory.

A request is one line: `{"do": "ps"}`, `{"do": "drain", "names": [...]}` or
`{"do": "restart", "names": [...], "rolling": false}`. An empty list of names means all devices; for `restart` all that
are not drained. The supervisor answers with any number of progress lines `{"said": ...}` and a last line
`{"devices": [...]}` or `{"error": ...}`.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from nnrt_device_service.host.peer import peer_of
from nnrt_hdi.errors import NnrtError, OperationFailed, OperationForbidden

Say = Callable[[str], None]
Answer = Callable[[dict[str, Any], Say], Awaitable[list[dict[str, Any]]]]
"""Function that carries out a request and returns the rows of all devices. Raises NnrtError."""

_LINE_BYTES = 1 << 20


@asynccontextmanager
async def serve_control(path: Path, answer: Answer) -> AsyncIterator[None]:
    """Answer requests on the socket at `path` during the block. Replaces the socket of an earlier supervisor."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def send(line: dict[str, Any]) -> None:
            writer.write(json.dumps(line).encode() + b"\n")

        try:
            _require_own(writer.get_extra_info("socket"))
            request = json.loads(await reader.readline())
            send({"devices": await answer(request, lambda said: send({"said": said}))})
        except NnrtError as error:
            send({"error": str(error)})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            send({"error": f"this is no request: {error!r}"})
        finally:
            with suppress(OSError):
                await writer.drain()
            writer.close()

    path.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(serve, path, limit=_LINE_BYTES)
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


def _require_own(connection: socket.socket) -> None:
    """Raise OperationForbidden unless the peer is root or the supervisor's own user."""
    user_id = peer_of(connection).user_id
    if user_id not in (0, os.geteuid()):
        raise OperationForbidden(f"user {user_id} may not ask this supervisor; its user and root may")


def ask(path: Path, request: dict[str, Any], say: Say) -> list[dict[str, Any]] | None:
    """Send a request to the supervisor and return the rows of all devices, or None if there is no supervisor.

    Raises OperationFailed if the supervisor can't be reached, refuses the request or ends before it has answered.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError as error:
            raise OperationFailed(f"the supervisor can't be asked: {error.strerror}", place=str(path)) from error
        with suppress(ConnectionError), connection.makefile("rb") as lines:
            connection.sendall(json.dumps(request).encode() + b"\n")
            for line in lines:
                answer = json.loads(line)
                if "said" in answer:
                    say(answer["said"])
                elif "error" in answer:
                    raise OperationFailed(answer["error"])
                else:
                    devices: list[dict[str, Any]] = answer["devices"]
                    return devices
    raise OperationFailed("the supervisor ended before it was done")
