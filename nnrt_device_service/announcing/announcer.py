"""Announcement of a daemon on its network link by multicast DNS service discovery (RFC 6762, RFC 6763)."""

import asyncio
import logging
import secrets
import socket
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Any

from nnrt_device_service.host.threads import start_thread
from nnrt_hdi import __version__
from nnrt_hdi.backend import DeviceInfo
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.service_type import SERVICE_TYPE

if TYPE_CHECKING:
    from zeroconf import ServiceInfo

_log = logging.getLogger(__name__)

_PLACE = "--announce"
_MAX_LABEL_BYTES = 63
# Limit of a property, key included.
_MAX_PROPERTY_BYTES = 255
# Seconds after which other hosts forget a daemon that ended without withdrawing (the records' TTL).
_HOLDS_S = 120
_OPEN_S = 10.0
_CLOSE_S = 2.0

_IP = IPv4Address | IPv6Address


class Announcer(Closable):
    """Announcement of a daemon, from `start` to `withdraw`."""

    def __init__(self, device: DeviceInfo, interfaces: Sequence[str] = ()) -> None:
        """Set the interfaces by their IP addresses; none means all. Raises InvalidParameter if zeroconf is missing."""
        try:
            import zeroconf  # noqa: F401
        except ModuleNotFoundError as error:
            raise InvalidParameter("it needs zeroconf; pip install 'nnrt[mdns]'", place=_PLACE) from error
        self._device = device
        self._interfaces = list(interfaces)
        self._opened: Future[None] = Future()
        self._thread: threading.Thread | None = None

    def start(self, listening: Sequence[str]) -> None:
        """Announce the addresses on which the daemon listens. Raises InvalidParameter if none can be announced."""
        ips, port = _reachable(listening)
        interfaces = self._interfaces or (["127.0.0.1"] if all(ip.is_loopback for ip in ips) else None)
        info = _service(self._device, ips, port)
        self._thread = start_thread(lambda: asyncio.run(self._announce(info, interfaces)), "announcer")
        self._opened.result(_OPEN_S)
        _log.info("announced as %s, at %s", info.name, ", ".join(f"{ip} port {port}" for ip in ips))

    def withdraw(self) -> None:
        """Begin to withdraw the announcement, without waiting. Idempotent."""
        if self._thread is not None:
            with suppress(RuntimeError):  # The loop is closed already.
                self._loop.call_soon_threadsafe(self._withdrawn.set)

    def close(self) -> None:
        """Withdraw the announcement, and wait a while until that is sent. Idempotent."""
        self.withdraw()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    async def _announce(self, info: "ServiceInfo", interfaces: list[str] | None) -> None:
        from zeroconf.asyncio import AsyncZeroconf

        self._loop, self._withdrawn = asyncio.get_running_loop(), asyncio.Event()
        options: dict[str, Any] = {} if interfaces is None else {"interfaces": interfaces}
        try:
            zeroconf = AsyncZeroconf(**options)
        except Exception as error:
            where = f"on {', '.join(interfaces)}" if interfaces else "on this host"
            self._opened.set_exception(InvalidParameter(f"no announcing {where}: {error}", place=_PLACE))
            return
        self._opened.set_result(None)
        async with zeroconf:
            # The name is random, so probing for conflicts isn't needed.
            await (await zeroconf.async_register_service(info, cooperating_responders=True))
            await self._withdrawn.wait()
            await (await zeroconf.async_unregister_service(info))


def _service(device: DeviceInfo, ips: Iterable[_IP], port: int) -> "ServiceInfo":
    from zeroconf import ServiceInfo

    own = secrets.token_hex(4)
    readable = "".join(one if one.isprintable() and one != "." else "-" for one in device.device_name)
    label = _cut(readable, _MAX_LABEL_BYTES - len(own) - 1)
    properties = {
        "name": device.device_name,
        "backend": f"{device.backend_name} {device.backend_version}",
        "kind": device.device_type.name,
        "version": __version__,
    }
    return ServiceInfo(
        SERVICE_TYPE,
        f"{label} {own}.{SERVICE_TYPE}",
        port=port,
        parsed_addresses=[str(ip) for ip in ips],
        properties={key: _cut(text, _MAX_PROPERTY_BYTES - len(key) - 1) for key, text in properties.items()},
        server=f"nnrt-{own}.local.",
        host_ttl=_HOLDS_S,
        other_ttl=_HOLDS_S,
    )


def _reachable(listening: Sequence[str]) -> tuple[list[_IP], int]:
    """Return the daemon's IP addresses, without loopback ones unless it has no others, and the port.

    Raises InvalidParameter if the daemon listens on no HOST:PORT.
    """
    found: dict[int, list[_IP]] = {}
    for address in listening:
        if not address.startswith("unix:"):
            host, _, port = address.rpartition(":")
            found.setdefault(int(port), []).extend(_ips(host.strip("[]")))
    ports = sorted(found, key=lambda port: all(ip.is_loopback for ip in found[port]))
    if not ports:
        raise InvalidParameter("it listens on no HOST:PORT that could be announced", place=_PLACE)
    ips = list(dict.fromkeys(found[ports[0]]))
    return [ip for ip in ips if not ip.is_loopback] or ips, ports[0]


def _ips(host: str) -> list[_IP]:
    found = [ip_address(target[0]) for *_, target in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    if any(ip.is_unspecified for ip in found):
        import ifaddr  # zeroconf depends on it.

        present = [ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips]
        of_host = [ip_address(ip if isinstance(ip, str) else ip[0]) for ip in present]
        takes_both = any(ip.version == 6 for ip in found)
        found = [ip for ip in of_host if not ip.is_link_local and (takes_both or ip.version == 4)]
    return found


def _cut(text: str, size_bytes: int) -> str:
    return text.encode()[:size_bytes].decode(errors="ignore")
