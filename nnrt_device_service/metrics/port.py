"""The port that Prometheus scrapes."""

import logging
import socket
import ssl
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from socketserver import TCPServer
from typing import Any

from prometheus_client import CollectorRegistry, MetricsHandler, ProcessCollector

from nnrt_device_service.access.watched_files import WatchedFiles
from nnrt_device_service.device import Device
from nnrt_device_service.host.threads import start_thread
from nnrt_device_service.metrics.collector import DeviceCollector
from nnrt_device_service.settings import Settings
from nnrt_hdi.errors import InvalidFile, InvalidParameter

_log = logging.getLogger(__name__)

# Connections at a time. The oldest gives way, so that nobody keeps others out.
_CONNECTIONS = 8
# How long a connection may take, and how long it may be silent.
_LONGEST_S, _SILENCE_S = 10.0, 5.0
# Between looks at those that take too long, and at whether to stop.
_LOOK_S = 0.25


class MetricsPort(TCPServer):
    """Tells the metrics of a device to whoever asks, over HTTP: with the daemon's TLS where it has any."""

    allow_reuse_address = True

    def __init__(self, address: str, device: Device, settings: Settings) -> None:
        """Serves from now on. Raises InvalidParameter for an address where it can't listen, InvalidFile for a
        certificate that can't be read."""
        host, _, port = address.rpartition(":")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._device = device
        self._tls = _watched_tls(settings)
        # Connections, and when each was taken. Only the thread that takes them adds any.
        self._since: dict[Any, float] = {}
        self._lock = threading.Lock()
        registry = CollectorRegistry()
        certificate = Path(settings.tls_cert) if settings.tls_cert else None
        registry.register(DeviceCollector(device, certificate, by_identity=settings.metrics_identities))
        ProcessCollector(registry=registry)
        try:
            super().__init__((host.strip("[]"), int(port)), MetricsHandler.factory(registry))
        except OSError as error:
            why = f"can't listen there: {error.strerror}"
            raise InvalidParameter(why, place=f"--metrics-listen {address!r}") from error
        start_thread(partial(self.serve_forever, _LOOK_S), "metrics")
        how = "with TLS" if self._tls else "in plain text"
        _log.info("telling metrics, %s, on %s:%d", how, host, self.server_address[1])

    def stop(self) -> None:
        """Take no more connections, and end those that there are."""
        self.shutdown()
        self.server_close()
        with self._lock:
            self._hang_up(list(self._since))

    def get_request(self) -> tuple[Any, Any]:
        """Take a connection; TLS is spoken by the thread that answers. Raises OSError where it can't be taken."""
        try:
            connection, client = super().get_request()
        except OSError:  # It goes on waiting, where the process has no descriptor left.
            time.sleep(_LOOK_S)
            raise
        connection.settimeout(_SILENCE_S)
        if self._tls is not None:
            connection = self._tls.content().wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, client

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in another thread. Raises OutOfMemory where there is none."""
        with self._lock:
            if len(self._since) >= _CONNECTIONS:
                self._hang_up([min(self._since, key=self._since.__getitem__)])
            self._since[request] = time.monotonic()
        self._device.threads.run(partial(self._answer, request, client_address))

    def service_actions(self) -> None:
        """End the connections that take too long."""
        horizon = time.monotonic() - _LONGEST_S
        with self._lock:
            self._hang_up([each for each, since in self._since.items() if since < horizon])

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._since.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell why a connection was not answered; clients that hang up are none of the daemon's business."""
        _log.debug("no metrics for %s", client_address, exc_info=True)

    def _answer(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:  # TLS errors are such.
            self.handle_error(request, client_address)
        except Exception:
            _log.exception("metrics could not be told")
        finally:
            self.shutdown_request(request)

    def _hang_up(self, connections: list[Any]) -> None:
        for connection in connections:
            del self._since[connection]
            with suppress(OSError):  # Its client has gone.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # Its thread closes it.


def _watched_tls(settings: Settings) -> WatchedFiles[ssl.SSLContext] | None:
    """TLS as the daemon's addresses have it, read again on change; None where they have none."""
    if not settings.tls_cert:
        return None
    files = [Path(name) for name in (settings.tls_cert, settings.tls_key, settings.tls_client_ca) if name]

    def read() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(settings.tls_cert, settings.tls_key)
            if settings.tls_client_ca:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(settings.tls_client_ca)
        except OSError as error:  # Errors of TLS are such.
            raise InvalidFile(f"{', '.join(map(str, files))} can't be used: {error}", place="TLS") from error
        return context

    return WatchedFiles(files, read)
