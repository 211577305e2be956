"""HTTP server of the protocol."""

import asyncio
import math
import socket
from functools import partial

import uvicorn

from nnrt_client.serving.rest.application import Application
from nnrt_client.serving.rest.connection import Connection
from nnrt_client.serving.server_state import ServerState
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.host_limits import raise_descriptor_limit
from nnrt_hdi.ports import port_number

_BACKLOG = 2048


class RestServer:
    """HTTP server at an address. It runs in a thread that gets no signals, so uvicorn leaves them alone."""

    def __init__(self, state: ServerState, address: str, read_s: float) -> None:
        """Listen. Clients get `read_s` seconds to send a request. Raises InvalidParameter if it can't listen."""
        host, self._socket = _listening(address)
        # Address that clients use.
        self.address = f"http://{host}:{self._socket.getsockname()[1]}"
        # Half of the descriptors are for other things, so that connections over HTTP can't take them all.
        connect = partial(Connection, read_s=read_s, most=raise_descriptor_limit() // 2)
        self._server = uvicorn.Server(
            uvicorn.Config(
                Application(state, read_s).asgi(),
                http=connect,  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=math.ceil(read_s),
                backlog=_BACKLOG,
            )
        )
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take calls."""
        self._serving = asyncio.create_task(self._server.serve([self._socket]))

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, and wait at most `grace_s` for those under way."""
        self._server.config.timeout_graceful_shutdown = math.ceil(grace_s)
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving


def _listening(address: str) -> tuple[str, socket.socket]:
    """Return the host of an address, and a socket that listens there. Raises InvalidParameter if it can't."""
    place = f"--http {address!r}"
    host, _, text = address.rpartition(":")
    port = port_number(text)
    if not host or port is None:
        raise InvalidParameter("use HOST:PORT, as in 127.0.0.1:8000", place=place)
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        return host, socket.create_server((bare, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InvalidParameter(f"can't listen there: {error.strerror}", place=place) from error
