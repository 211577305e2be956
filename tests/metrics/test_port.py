"""The port of metrics: who gets in, and what strangers can do there."""

import errno
import re
import socket
import ssl
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from access.conftest import Fleet, fleet, make_fleet, works
from conftest import StartDaemon
from nnrt_backend_reference import create
from waiting import until

from metrics.scraping import LISTEN, metrics_address, scraped, value
from nnrt_client import Settings
from nnrt_device_service.device import Device
from nnrt_device_service.metrics.port import MetricsPort
from nnrt_device_service.settings import Settings as DeviceSettings

__all__ = ["fleet", "make_fleet"]

_TIMEOUT_S = 20.0


def connected(address: str, closing: ExitStack) -> socket.socket:
    host, _, port = address.rpartition(":")
    return closing.enter_context(socket.create_connection((host, int(port)), _TIMEOUT_S))


def test_tls_where_the_daemon_has_it(start_daemon: StartDaemon, fleet: Fleet) -> None:
    daemon = start_daemon(*fleet.flags, *LISTEN)
    trusting = ssl.create_default_context(cafile=fleet.ca)
    assert value(scraped(daemon, trusting), "nnrt_device_slots") >= 1
    with pytest.raises(OSError):  # It hangs up.
        scraped(daemon)


def test_certificates_of_those_who_scrape(start_daemon: StartDaemon, fleet: Fleet) -> None:
    daemon = start_daemon(*fleet.client_flags, *LISTEN)
    trusting = ssl.create_default_context(cafile=fleet.ca)
    with pytest.raises(OSError):
        scraped(daemon, trusting)
    trusting.load_cert_chain(*fleet.authority.issue_client("prometheus", 30))
    assert value(scraped(daemon, trusting), "nnrt_device_slots") >= 1


def test_those_who_are_silent_or_slow_keep_nobody_out(start_daemon: StartDaemon, closing: ExitStack) -> None:
    """More connections than there are places: the oldest give way."""
    daemon = start_daemon(*LISTEN)
    address = metrics_address(daemon)
    silent = [connected(address, closing) for _ in range(40)]
    for each in silent[::2]:
        each.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
    assert value(scraped(daemon), "nnrt_device_slots") >= 1
    assert silent[0].recv(1) == b""
    until(lambda: all(each.recv(4096) == b"" for each in silent[:20]))
    works(daemon.address, Settings())


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01 no TLS here\r\n\r\n", b"A" * 100_000, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n"]
)
def test_what_is_no_request_is_answered_or_hung_up_on(
    start_daemon: StartDaemon, closing: ExitStack, sent: bytes
) -> None:
    daemon = start_daemon(*LISTEN)
    stranger = connected(metrics_address(daemon), closing)
    stranger.sendall(sent)
    stranger.shutdown(socket.SHUT_WR)
    try:
        answer = stranger.recv(4096)
    except ConnectionResetError:
        answer = b""
    assert not answer or b" 4" in answer[:80] or b"Error code: 4" in answer
    assert value(scraped(daemon), "nnrt_device_slots") >= 1
    assert "Traceback" not in daemon.log()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", ":1", "nowhere.invalid:1"])
def test_an_address_that_is_none_is_refused(start_daemon: StartDaemon, address: str) -> None:
    with pytest.raises(RuntimeError, match=re.escape(address)):
        start_daemon("--metrics-listen", address)


def test_a_port_that_is_taken_is_refused(start_daemon: StartDaemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(RuntimeError, match="Address already in use"):
        start_daemon("--metrics-listen", f"127.0.0.1:{taken.getsockname()[1]}")


def test_without_the_library(start_daemon: StartDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['prometheus_client'] = None\n")
    monkeypatch.setattr("daemon_process._PLUGINS", tmp_path / "plugins")
    with pytest.raises(RuntimeError, match=re.escape("pip install 'nnrt[metrics]'")):
        start_daemon(*LISTEN)
    works(start_daemon().address, Settings())


def test_nobody_listens_unless_asked(start_daemon: StartDaemon) -> None:
    assert "serving metrics" not in start_daemon().log()


def test_a_daemon_that_ends_hangs_up(start_daemon: StartDaemon, closing: ExitStack) -> None:
    daemon = start_daemon(*LISTEN)
    stranger = connected(metrics_address(daemon), closing)
    daemon.process.terminate()
    assert daemon.wait() == 0
    with suppress(ConnectionResetError):  # Where the daemon had not taken the connection yet.
        assert stranger.recv(1) == b""
    with pytest.raises(URLError):
        scraped(daemon)


def test_a_process_without_descriptors_does_not_try_without_end(
    monkeypatch: pytest.MonkeyPatch, closing: ExitStack
) -> None:
    """A connection that can't be taken stays, and is tried now and then until it can."""
    failures: list[float] = []
    accept = TCPServer.get_request

    def fail_at_first(server: TCPServer) -> Any:
        if len(failures) < 3:
            failures.append(time.monotonic())
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(server)

    monkeypatch.setattr(TCPServer, "get_request", fail_at_first)
    device = Device(create({}), DeviceSettings())
    closing.callback(device.close, 0.0)
    port = MetricsPort("127.0.0.1:0", device, DeviceSettings(), None)
    closing.callback(port.stop)
    with urlopen(f"http://127.0.0.1:{port.server_address[1]}/metrics", timeout=_TIMEOUT_S) as reply:
        assert b"nnrt_device_slots" in reply.read()
    assert failures[-1] - failures[0] > 0.1
