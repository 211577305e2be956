"""HTTP port that Prometheus scrapes."""

import logging
import socket
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from socketserver import TCPServer
from typing import Any

from prometheus_client import CollectorRegistry, MetricsHandler, ProcessCollector

from nnrt_device_service.device import Device
from nnrt_device_service.host.threads import start_thread
from nnrt_device_service.metrics.collector import DeviceCollector
from nnrt_device_service.settings import Settings
from nnrt_hdi.access.certificates import Certificates
from nnrt_hdi.access.watched_files import WatchedFiles
from nnrt_hdi.errors import InvalidParameter

_log = logging.getLogger(__name__)

# Connections at a time. A new one replaces the oldest, so that no client can block others.
_CONNECTIONS = 8
# Seconds that a connection may last, and may be silent.
_LONGEST_S, _SILENCE_S = 10.0, 5.0
# Seconds between checks for overdue connections and for the end.
_LOOK_S = 0.25


class MetricsPort(TCPServer):
    """HTTP server of a device's metrics, with the daemon's TLS if that is set."""

    allow_reuse_address = True

    def __init__(
        self, address: str, device: Device, settings: Settings, certificates: WatchedFiles[Certificates] | None
    ) -> None:
        """Listen and start to serve.

        Raises InvalidParameter if it can't listen on the address, and InvalidFile if the certificate can't be read.
        """
        host, _, port = address.rpartition(":")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._device = device
        self._certificates = certificates
        # Connections with their times of acceptance. Only the accepting thread adds connections.
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
        how = "with TLS" if certificates else "in plain text"
        _log.info("serving metrics, %s, on %s:%d", how, host, self.server_address[1])

    def stop(self) -> None:
        """Stop accepting connections and end the open ones."""
        self.shutdown()
        self.server_close()
        with self._lock:
            self._hang_up(list(self._since))

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection. The answering thread does the TLS handshake. Raises OSError if accepting fails."""
        try:
            connection, client = super().get_request()
        except OSError:  # The connection stays pending while the process has no free descriptor.
            time.sleep(_LOOK_S)
            raise
        connection.settimeout(_SILENCE_S)
        if self._certificates is not None:
            tls = self._certificates.content().context
            connection = tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, client

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in another thread. Raises OutOfMemory if no thread can be started."""
        with self._lock:
            if len(self._since) >= _CONNECTIONS:
                self._hang_up([min(self._since, key=self._since.__getitem__)])
            self._since[request] = time.monotonic()
        self._device.threads.run(partial(self._answer, request, client_address))

    def service_actions(self) -> None:
        """End overdue connections."""
        horizon = time.monotonic() - _LONGEST_S
        with self._lock:
            self._hang_up([each for each, since in self._since.items() if since < horizon])

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._since.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log at DEBUG why a connection got no answer, such as a client that hung up."""
        _log.debug("no metrics for %s", client_address, exc_info=True)

    def _answer(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:  # Including TLS errors.
            self.handle_error(request, client_address)
        except Exception:
            _log.exception("metrics could not be sent")
        finally:
            self.shutdown_request(request)

    def _hang_up(self, connections: list[Any]) -> None:
        for connection in connections:
            del self._since[connection]
            with suppress(OSError):  # The client has hung up.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # The answering thread closes it.
