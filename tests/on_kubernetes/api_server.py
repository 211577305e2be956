"""Kubernetes API server on the loopback that lists and watches EndpointSlices like the real one.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from typing_extensions import Self
from waiting import DEADLINE_S

from nnrt_hdi.closable import Closable

_RESOURCE = "/apis/discovery.k8s.io/v1/namespaces/nnrt/endpointslices"
_TOKEN = "let-me-in"  # noqa: S105
Slice = dict[str, Any]


def endpoint(address: str, pod: str | None = None, **conditions: bool) -> dict[str, Any]:
    reference = {"targetRef": {"kind": "Pod", "name": pod, "uid": f"uid-of-{pod}"}} if pod else {}
    return {"addresses": [address], "conditions": conditions, **reference}


def slice_of(
    *endpoints: dict[str, Any],
    name: str = "nnrt-device-abcde",
    service: str = "nnrt-device",
    family: str = "IPv4",
    ports: dict[str, int] | None = None,
) -> Slice:
    return {
        "metadata": {"name": name, "namespace": "nnrt", "labels": {"kubernetes.io/service-name": service}},
        "addressType": family,
        # Go writes an empty list as null.
        "endpoints": list(endpoints) or None,
        "ports": [
            {"name": port, "port": number, "protocol": "TCP"} for port, number in (ports or {"nnrt": 50051}).items()
        ],
    }


class ApiServer(Closable):
    """API server with EndpointSlices; a test changes the slices, and may make the server fail."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._slices: dict[str, Slice] = {}
        self._version = 100
        # Versions from which watches began.
        self.watches: list[int] = []
        # Latest version sent to a watch.
        self._sent_version = 0
        # Versions before this one are forgotten.
        self._compacted = 0
        self._events: list[tuple[int, str, Slice]] = []
        # Queries of all requests so far.
        self.asked: list[dict[str, str]] = []
        # Status and reason with which the server refuses every request, or None.
        self.refusal: tuple[int, str] | None = None
        # True to refuse a watch from a forgotten version with status 410, instead of an ERROR line.
        self.refuses_forgotten = False
        # True to send no changes to watches, like a network that drops packets.
        self.is_silent = False
        # Number of times that watches have been dropped.
        self._breaks = 0
        self._is_open = True
        self._connections: list[socket.socket] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False  # `close` waits for them.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.port = self._server.server_port

    def write_config(self, folder: Path) -> Path:
        """Write a kubeconfig for the server, and return its path."""
        path = folder / "config"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
                    "users": [{"name": "me", "user": {"token": _TOKEN}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "me"}}],
                    "current-context": "test",
                }
            )
        )
        return path

    def apply(self, piece: Slice) -> Self:
        with self._changing():
            name = piece["metadata"]["name"]
            self._tell("MODIFIED" if name in self._slices else "ADDED", piece)
            self._slices[name] = piece
        return self

    def delete(self, name: str = "nnrt-device-abcde") -> None:
        with self._changing():
            self._tell("DELETED", self._slices.pop(name))

    def bookmark(self) -> None:
        """Send a bookmark with a later version to a watch, and wait until it has been sent."""
        with self._changing():
            self._version += 10
            self._events.append((self._version, "BOOKMARK", {"metadata": {"resourceVersion": str(self._version)}}))
        with self._changed:
            assert self._changed.wait_for(lambda: self._sent_version == self._version, DEADLINE_S)

    def compact(self) -> None:
        """Forget all earlier versions: a watch from one of them gets 410."""
        with self._changing():
            self._version += 1
            self._compacted = self._version

    def break_off(self) -> None:
        """Drop the connections of all watches in the middle of a line."""
        with self._changing():
            self._breaks += 1

    @contextmanager
    def out_of_order(self) -> Iterator[None]:
        """Refuse all requests, and drop all watches, within the block."""
        self.refusal = (503, "Service Unavailable")
        self.break_off()
        yield
        self.refusal = None

    def close(self) -> None:
        with self._changing():
            self._is_open = False
        self._server.shutdown()
        for connection in self._connections:
            with suppress(OSError):  # Already closed.
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._changed:
            yield
            self._changed.notify_all()

    def _tell(self, kind: str, piece: Slice) -> None:
        self._version += 1
        piece["metadata"] = {**piece["metadata"], "resourceVersion": str(self._version)}
        self._events.append((self._version, kind, piece))

    def _listed(self, service: str) -> dict[str, Any]:
        with self._changed:
            return {
                "kind": "EndpointSliceList",
                "apiVersion": "discovery.k8s.io/v1",
                "metadata": {"resourceVersion": str(self._version)},
                "items": [piece for piece in self._slices.values() if _service_of(piece) == service],
            }

    def _watched(self, service: str, since: int, seconds: float) -> Iterator[bytes | None]:
        """Yield the lines of a watch, and None to drop the connection in the middle of a line."""
        deadline = time.monotonic() + min(seconds, DEADLINE_S)
        with self._changed:
            if since < self._compacted:
                yield _line(
                    "ERROR",
                    {
                        "kind": "Status",
                        "code": 410,
                        "reason": "Expired",
                        "message": f"too old resource version: {since}",
                    },
                )
                return
            breaks = self._breaks
            sent_version = since
            self.watches.append(since)
            while self._is_open and time.monotonic() < deadline:
                if self._breaks > breaks:
                    yield None
                    return
                for version, kind, piece in [] if self.is_silent else list(self._events):
                    if version > sent_version and (kind == "BOOKMARK" or _service_of(piece) == service):
                        yield _line(kind, piece)
                        sent_version = self._sent_version = version
                        self._changed.notify_all()
                self._changed.wait(max(deadline - time.monotonic(), 0))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                server._connections.append(self.connection)

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                server.asked.append(query)
                if self.headers["Authorization"] != f"Bearer {_TOKEN}":
                    return self._refuse(401, "Unauthorized")
                if server.refusal:
                    return self._refuse(*server.refusal)
                if parts.path != _RESOURCE:
                    return self._refuse(404, "Not Found")
                key, _, service = query["labelSelector"].partition("=")
                assert key == "kubernetes.io/service-name"
                if _is_watch(query):
                    if server.refuses_forgotten and int(query["resourceVersion"]) < server._compacted:
                        return self._refuse(410, "Gone")
                    return self._watch(service, query)
                return self._reply(200, server._listed(service))

            def _watch(self, service: str, query: dict[str, str]) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                try:
                    for line in server._watched(service, int(query["resourceVersion"]), float(query["timeoutSeconds"])):
                        if line is None:
                            self.wfile.write(b'20\r\n{"type":"MODI')
                            self.close_connection = True
                            return
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                    self.wfile.write(b"0\r\n\r\n")
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def _refuse(self, status: int, reason: str) -> None:
                self._reply(status, {"kind": "Status", "code": status, "reason": reason, "message": reason})

            def _reply(self, status: int, message: dict[str, Any]) -> None:
                body = json.dumps(message).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _is_watch(query: dict[str, str]) -> bool:
    return query.get("watch", "").lower() == "true"


def _service_of(piece: Slice) -> str:
    service: str = piece["metadata"]["labels"]["kubernetes.io/service-name"]
    return service


def _line(kind: str, content: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": content}).encode() + b"\n"
