"""Checks of `nnrt doctor` on the connection to a daemon: from its address to the bandwidth."""

import socket
import ssl
import statistics
import sys
import time
from collections.abc import Iterator

import numpy as np

from nnrt_client.cli.findings import Finding, advise, ok, problem
from nnrt_client.cli.printing import format_bytes
from nnrt_client.session.address import Address
from nnrt_client.session.credentials import diagnose_handshake, speaks_tls, tls_greeting
from nnrt_client.session.device import Device
from nnrt_client.settings import Settings
from nnrt_client.tensors.device_buffer import DeviceBuffer

_UNIX = "unix:"
_SOON_S, _DAY_S = 30 * 86400.0, 86400.0
_ROUND_TRIPS = 32
# Sizes copied to the daemon and back: a small one first, and a large one if the small one took less than _QUICK_S.
_SMALL_BYTES, _LARGE_BYTES = 1 << 20, 1 << 24
_QUICK_S = 0.25
# 100 Mbit/s. On slower networks compression saves more time than it costs.
_SLOW_BYTES_PER_S = 12.5e6


def check_connection(address: str, settings: Settings) -> Iterator[Finding]:
    """Check whether a process listens at the address, and how long connecting takes."""
    about = "connection"
    began = time.perf_counter()
    try:
        _connect(address, settings.connect_timeout_s)
    except ValueError:
        advice = "give HOST:PORT, unix:PATH, or a name such as dns:///HOST:PORT"
        yield problem(about, f"{address!r} is no address", advice)
    except (ConnectionRefusedError, FileNotFoundError):
        advice = f"check the spelling; else nnrt-device serve --listen {address}"
        yield problem(about, "the host is there, but nobody listens at this address", advice)
    except socket.gaierror as error:
        yield problem(about, f"no such host is known: {error.strerror}", "check the spelling, or ask a name server")
    except TimeoutError:
        advice = "check that the host is up and that no firewall blocks this port"
        yield problem(about, f"nobody answers within {settings.connect_timeout_s:g} s", advice)
    except OSError as error:
        yield problem(about, f"it can't be reached: {error.strerror or error}", "check this host's network")
    else:
        yield ok(about, f"made in {(time.perf_counter() - began) * 1e3:.1f} ms")


def _connect(address: str, timeout_s: float) -> None:
    """Connect to an address and close. Raises ValueError for a malformed address, OSError for a failed connection."""
    if address.startswith(_UNIX):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(timeout_s)
            probe.connect(address.removeprefix(_UNIX))
        return
    host, _, port = address.rpartition(":")
    if not host or int(port) not in range(1 << 16):
        raise ValueError(address)
    socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()


def check_encryption(address: str, settings: Settings) -> Iterator[Finding]:
    """Check whether client and daemon use TLS, which hosts the certificate names, and when it expires."""
    if wrong := diagnose_handshake(address, settings):
        found, _, advice = wrong.partition("; ")
        yield problem("TLS", found, advice)
    elif speaks_tls(address, settings):
        yield from _certificate(address, settings)
    elif Address(address).is_local:
        yield ok("TLS", "none, and nothing leaves this host")
    else:
        yield advise(
            "TLS",
            "none: others on the network can read and change the traffic",
            "nnrt-device keys server; docs/guides/secure.md",
        )


def _certificate(address: str, settings: Settings) -> Iterator[Finding]:
    try:
        greeting = tls_greeting(address, settings)
    except ssl.SSLError as error:
        yield problem("TLS", f"the handshake fails: {error.reason or error}")
        return
    left_s = greeting.expires_at - time.time()
    found = (
        f"{greeting.version}; the certificate is for {', '.join(greeting.hosts)}, for {left_s / _DAY_S:.0f} more days"
    )
    if left_s < _SOON_S:
        yield advise("TLS", found, "nnrt-device keys server ... --replace: the daemon reads it again by itself")
    else:
        yield ok("TLS", found)


def check_round_trip(device: Device) -> Iterator[Finding]:
    """Measure how long a request and its reply take."""
    times_ms = []
    for _ in range(_ROUND_TRIPS):
        began = time.perf_counter()
        device.status()
        times_ms.append((time.perf_counter() - began) * 1e3)
    usual, slowest = statistics.median(times_ms), max(times_ms)
    yield ok("round trip", f"{usual:.2f} ms, the slowest of {_ROUND_TRIPS} {slowest:.2f} ms")
    error_ns = device._session().clock.error_ns
    if error_ns is not None:
        yield ok("clock", f"the daemon's clock is known within {error_ns / 1e3:,.0f} µs, and so are both ways of a run")


def check_side_channel(device: Device) -> Iterator[Finding]:
    """Check whether tensors pass through shared memory, and if not, why."""
    session = device._session()
    is_local = Address(device.address).is_local
    if session.local_socket is not None:
        yield ok("side channel", "the local socket: runs bypass gRPC, and large tensors are in shared memory")
    elif not is_local:
        yield ok("side channel", "none, as the daemon isn't on this host; tensors travel over gRPC")
    elif sys.platform != "linux":
        yield ok("side channel", "none, as this host isn't Linux; tensors travel over gRPC")
    elif not session.welcome.local_socket:
        yield advise(
            "side channel", "the daemon offers none; tensors travel over gRPC", "start it without --no-shared-memory"
        )
    elif not session.settings.share_memory:
        yield advise("side channel", "this client wants none; tensors travel over gRPC", "Settings(share_memory=True)")
    else:
        found = "the daemon's local socket can't be reached: it is in another network namespace, such as a container's"
        yield advise("side channel", found, "let both have the same one (podman run --network host)")


def check_bandwidth(device: Device) -> Iterator[Finding]:
    """Measure how fast bytes travel to the daemon and back, with at most 16 MiB."""
    up, down, size_bytes = _time_copy(device, _SMALL_BYTES)
    if up + down < _QUICK_S:
        up, down, size_bytes = _time_copy(device, _LARGE_BYTES)
    rates = tuple(f"{format_bytes(size_bytes / seconds)}/s" for seconds in (up, down))
    found = f"{rates[0]} there, {rates[1]} back, by {format_bytes(size_bytes)}"
    is_slow = size_bytes / max(up, down) < _SLOW_BYTES_PER_S
    session = device._session()
    if is_slow and session.local_socket is None and session.compressor is None:
        yield advise("bandwidth", found, 'Settings(compression="deflate") compresses tensors without loss')
    else:
        yield ok("bandwidth", found)


def _time_copy(device: Device, size_bytes: int) -> tuple[float, float, int]:
    """Return the seconds that `size_bytes` take to the daemon and back, and `size_bytes`."""
    data = np.random.default_rng(0).bytes(size_bytes)
    buffer = DeviceBuffer(device._session(), size_bytes)
    try:
        buffer.write(memoryview(data[:1]))  # Not measured, because the first copy includes setup.
        began = time.perf_counter()
        buffer.write(memoryview(data))
        written = time.perf_counter()
        buffer.read(size_bytes)
        return written - began, time.perf_counter() - written, size_bytes
    finally:
        buffer.release()
