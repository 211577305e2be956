"""Checks of the way to a daemon for `nnrt doctor`: from the address to the bandwidth."""

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
from nnrt_client.session.credentials import speaks_tls, tls_greeting, what_is_wrong
from nnrt_client.session.device import Device
from nnrt_client.settings import Settings
from nnrt_client.tensors.device_buffer import DeviceBuffer

_UNIX = "unix:"
_SOON_S, _DAY_S = 30 * 86400.0, 86400.0
_ROUND_TRIPS = 32
# Bytes copied to the daemon and back: first few, then, if that was quick, more.
_SMALL_BYTES, _LARGE_BYTES = 1 << 20, 1 << 24
_QUICK_S = 0.25
# 100 Mbit/s; below, compression saves more than it costs.
_SLOW_BYTES_PER_S = 12.5e6


def connection(address: str, settings: Settings) -> Iterator[Finding]:
    """Check whether somebody listens, and how long connecting takes."""
    about = "connection"
    began = time.perf_counter()
    try:
        _connect(address, settings.connect_timeout_s)
    except ValueError:
        advice = "give HOST:PORT, unix:PATH, or a name such as dns:///HOST:PORT"
        yield problem(about, f"{address!r} is no address", advice)
    except (ConnectionRefusedError, FileNotFoundError):
        advice = f"look whether it is spelled right; else nnrt-device serve --listen {address}"
        yield problem(about, "the host is there, but nobody listens at this address", advice)
    except socket.gaierror as error:
        yield problem(
            about, f"no such host is known: {error.strerror}", "look how it is spelled; else ask a name server"
        )
    except TimeoutError:
        advice = "look whether the host is up, and whether a firewall lets this port through"
        yield problem(about, f"nobody answers within {settings.connect_timeout_s:g} s", advice)
    except OSError as error:
        yield problem(about, f"it can't be reached: {error.strerror or error}", "look at this host's network")
    else:
        yield ok(about, f"made in {(time.perf_counter() - began) * 1e3:.1f} ms")


def _connect(address: str, timeout_s: float) -> None:
    """Connect and hang up. Raise ValueError for a wrong address, OSError if nobody listens."""
    if address.startswith(_UNIX):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(timeout_s)
            probe.connect(address.removeprefix(_UNIX))
        return
    host, _, port = address.rpartition(":")
    if not host or int(port) not in range(1 << 16):
        raise ValueError(address)
    socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()


def encryption(address: str, settings: Settings) -> Iterator[Finding]:
    """Check whether both ends use TLS, and the certificate's hosts and expiry."""
    if wrong := what_is_wrong(address, settings):
        found, _, advice = wrong.partition("; ")
        yield problem("TLS", found, advice)
    elif speaks_tls(address, settings):
        yield from _certificate(address, settings)
    elif Address(address).is_local:
        yield ok("TLS", "none, and nothing leaves this host")
    else:
        yield advise(
            "TLS",
            "none: whoever is on the way reads and changes what passes",
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


def round_trip(device: Device) -> Iterator[Finding]:
    """Check how long a call takes."""
    times_ms = []
    for _ in range(_ROUND_TRIPS):
        began = time.perf_counter()
        device.status()
        times_ms.append((time.perf_counter() - began) * 1e3)
    usual, slowest = statistics.median(times_ms), max(times_ms)
    yield ok("round trip", f"{usual:.2f} ms, the slowest of {_ROUND_TRIPS} {slowest:.2f} ms")
    error_ns = device._session().clock.error_ns
    if error_ns is not None:
        yield ok("clock", f"the daemon's is known within {error_ns / 1e3:,.0f} µs, and so are both ways of a run")


def side_channel(device: Device) -> Iterator[Finding]:
    """Check whether tensors travel through shared memory, and why not."""
    session = device._session()
    is_local = Address(device.address).is_local
    if session.local_socket is not None:
        yield ok("side channel", "the local socket: runs pass gRPC by, and large tensors are shared")
    elif not is_local:
        yield ok("side channel", "none, for the daemon isn't on this host; tensors travel over gRPC")
    elif sys.platform != "linux":
        yield ok("side channel", "none, for this host isn't Linux; tensors travel over gRPC")
    elif not session.welcome.local_socket:
        yield advise(
            "side channel", "the daemon offers none; tensors travel over gRPC", "start it without --no-shared-memory"
        )
    elif not session.settings.share_memory:
        yield advise("side channel", "this client wants none; tensors travel over gRPC", "Settings(share_memory=True)")
    else:
        found = (
            "the daemon's local socket isn't to be reached: it is in another network namespace, such as a container's"
        )
        yield advise("side channel", found, "let both have the same one (podman run --network host)")


def bandwidth(device: Device) -> Iterator[Finding]:
    """Check the bandwidth to the daemon and back, with at most 16 MiB."""
    up, down, size_bytes = _copied(device, _SMALL_BYTES)
    if up + down < _QUICK_S:
        up, down, size_bytes = _copied(device, _LARGE_BYTES)
    rates = tuple(f"{format_bytes(size_bytes / seconds)}/s" for seconds in (up, down))
    found = f"{rates[0]} there, {rates[1]} back, by {format_bytes(size_bytes)}"
    is_slow = size_bytes / max(up, down) < _SLOW_BYTES_PER_S
    session = device._session()
    if is_slow and session.local_socket is None and session.compressor is None:
        yield advise("bandwidth", found, 'Settings(compression="deflate") shortens what travels, without loss')
    else:
        yield ok("bandwidth", found)


def _copied(device: Device, size_bytes: int) -> tuple[float, float, int]:
    """Return the seconds that bytes take to the daemon, and back."""
    data = np.random.default_rng(0).bytes(size_bytes)
    buffer = DeviceBuffer(device._session(), size_bytes)
    try:
        buffer.write(memoryview(data[:1]))  # Sets everything up before the measurement.
        began = time.perf_counter()
        buffer.write(memoryview(data))
        written = time.perf_counter()
        buffer.read(size_bytes)
        return written - began, time.perf_counter() - written, size_bytes
    finally:
        buffer.release()
