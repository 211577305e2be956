"""Metrics of a server for Prometheus, over HTTP."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nnrt_client.model_session.pool import Pool
from nnrt_client.serving.metrics import metrics_of
from nnrt_client.serving.server_state import ServerState


class Metrics:
    """Teller of a server's metrics."""

    def __init__(self, state: ServerState, pool: Pool, certificate: str) -> None:
        """Create it. `certificate` is the file of the server's certificate, empty without one."""
        self._state = state
        self._pool = pool
        self._certificate = Path(certificate) if certificate else None
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    def asgi(self) -> Starlette:
        """Return the application of a port for metrics alone."""
        return Starlette(routes=[Route("/metrics", self.respond)])

    async def respond(self, request: Request) -> Response:
        """Return the metrics. They are taken in the loop, and made text in another thread."""
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        made = metrics_of(self._state, self._pool.members(), self._certificate)
        return Response(await asyncio.to_thread(self._encode, encode, made), media_type=kind)

    def _encode(self, encode: Callable[[Collector], bytes], made: Iterable[Metric]) -> bytes:
        return encode(_Collected([*made, *self._process.collect()]))


class _Collected(Collector):
    """Metrics that have been collected."""

    def __init__(self, made: Iterable[Metric]) -> None:
        self._made = made

    def collect(self) -> Iterable[Metric]:
        return self._made
