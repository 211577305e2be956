"""How commands ask the supervisor: a Unix socket in its state directory, and a line of JSON each way.

A request is `{"do": "ps"}`, `{"do": "drain", "names": [...]}` or `{"do": "restart", "names": [...], "rolling": false}`,
where no names mean all (for `restart` those not drained). Lines `{"said": ...}` tell how it goes; the last one is
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
"""Does what a request asks for, and gives how the devices are then. Raises NnrtError."""

_LINE_BYTES = 1 << 20


@asynccontextmanager
async def serve_control(path: Path, answer: Answer) -> AsyncIterator[None]:
    """Answer requests while the block lasts, in the place of a socket that a supervisor before has left."""

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
    """Only root and the supervisor's own user may ask."""
    user_id = peer_of(connection).user_id
    if user_id not in (0, os.geteuid()):
        raise OperationForbidden(f"user {user_id} may not ask this supervisor; its user and root may")


def ask(path: Path, request: dict[str, Any], say: Say) -> list[dict[str, Any]] | None:
    """How the devices are when what is asked for is done; None where there is no supervisor.

    Raises OperationFailed for what it refuses, or where it ends meanwhile.
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
