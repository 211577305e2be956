"""HTTP servers of the protocol and of metrics."""

import asyncio
import math
import socket
import ssl
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette

from nnrt_client.serving.rest.connection import Connection
from nnrt_hdi.access.certificates import Certificates
from nnrt_hdi.access.watched_files import WatchedFiles
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.host_limits import raise_descriptor_limit
from nnrt_hdi.ports import port_number

_BACKLOG = 2048


class RestServer:
    """HTTP server at an address. It runs in a thread that gets no signals, so uvicorn leaves them alone."""

    def __init__(
        self,
        application: Starlette,
        address: str,
        place: str,
        read_s: float,
        tls: WatchedFiles[Certificates] | None = None,
    ) -> None:
        """Listen.

        Args:
            application: What answers requests.
            address: Where to listen.
            place: Option that has the address.
            read_s: Seconds that clients get to send a request.
            tls: Certificates of the server; None for no TLS.

        Raises:
            InvalidParameter: It can't listen there.
        """
        host, self._socket = _listening(address, f"{place} {address!r}")
        # Address that clients use.
        self.address = f"{'http' if tls is None else 'https'}://{host}:{self._socket.getsockname()[1]}"
        # Half of the descriptors are for other things, so that connections over HTTP can't take them all.
        connect = partial(Connection, read_s=read_s, most=raise_descriptor_limit() // 2)
        config = uvicorn.Config(
            application,
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
        config.load()
        config.ssl = None if tls is None else _context(tls)
        self._server = uvicorn.Server(config)
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


def _context(tls: WatchedFiles[Certificates]) -> ssl.SSLContext:
    """Return the context of a socket that listens; each connection gets that of the files as they are then."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = tls.content().context.verify_mode

    def choose(connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = tls.content().context

    context.sni_callback = choose
    return context


def _listening(address: str, place: str) -> tuple[str, socket.socket]:
    """Return the host of an address, and a socket that listens there. Raises InvalidParameter if it can't."""
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
