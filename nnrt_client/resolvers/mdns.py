"""Resolver of mdns:///: daemons that announce themselves on the local network (`nnrt-device serve --announce`).

It uses zeroconf. Any host on the network may announce daemons: only a daemon's certificate proves whose it is.
"""

import asyncio
import time
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

import ifaddr
from zeroconf import DNSQuestionType, Error, ServiceInfo, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf

from nnrt_client.resolvers.names import Name
from nnrt_client.resolvers.resolver import MOST_ADDRESSES, Resolver
from nnrt_client.resolvers.targets import order_addresses
from nnrt_client.settings import Settings
from nnrt_hdi.errors import ConnectionFailed, OperationForbidden
from nnrt_hdi.service_type import SERVICE_TYPE

# Seconds that the resolver waits for the first answers.
_FIRST_S = 0.5
# Seconds that a killed daemon stays listed. A daemon that drains withdraws its announcement at once.
_HOLDS_S = 120.0
# Limit for a daemon to send details that its announcement lacks, and number of daemons asked at a time.
_DETAILS_MS, _MOST_ASKED = 1000, 64
# Pause before daemons that sent no details are asked again.
_ASK_AGAIN_S = 5.0

_IP = IPv4Address | IPv6Address


class LinkResolver(Resolver):
    """Resolver of the daemons on the local network, with one address per daemon: the best one for this host."""

    if_empty = ": no daemon announces itself on this link; start one with --announce, or give an address"

    def __init__(self, name: str, interface: str, first_s: float) -> None:
        """Create a resolver that asks on the interface with this IP address, or on all if it is empty."""
        super().__init__(name, _HOLDS_S)
        self._interface = interface
        self._first_s = first_s
        self._loop: asyncio.AbstractEventLoop | None = None
        # The details of each announced daemon by its service name, or None while they are not known.
        self._services: dict[str, ServiceInfo | None] = {}

    def _follow(self) -> None:
        try:
            asyncio.run(self._browse())
        except OSError as error:
            raise ConnectionFailed(f"the link can't be asked: {error}", place=self.name) from error

    def _interrupt(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # The loop has ended.
                self._loop.call_soon_threadsafe(self._event.set)

    async def _browse(self) -> None:
        # Checked first, because zeroconf would leave a socket open.
        if self._interface and ip_address(self._interface) not in _LinkPosition().own:
            raise ConnectionFailed(f"no interface of this host has the address {self._interface}", place=self.name)
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._services.clear()
        options: dict[str, Any] = {"interfaces": [self._interface]} if self._interface else {}
        async with AsyncZeroconf(**options) as zeroconf:
            # Ask for unicast answers, which come at once, and for multicast ones: if several processes of this host
            # listen, only one of them gets a unicast answer.
            for question_type in (DNSQuestionType.QU, DNSQuestionType.QM):
                AsyncServiceBrowser(
                    zeroconf.zeroconf, SERVICE_TYPE, handlers=[self._note_service], question_type=question_type
                )
            await self._gather_answers()
            while not self._is_over:
                self._event.clear()
                await self._ask_details(zeroconf.zeroconf)
                self._publish(self._addresses())
                again_s = None if all(self._services.values()) else _ASK_AGAIN_S
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._event.wait(), again_s)

    def _addresses(self) -> tuple[str, ...]:
        here = _LinkPosition()
        found = [(here.best_address(info), info.port) for info in self._services.values() if info is not None]
        return order_addresses((ip, port) for ip, port in found if ip is not None and port)

    async def _gather_answers(self) -> None:
        until = time.monotonic() + self._first_s
        while not self._is_over and (remaining_s := until - time.monotonic()) > 0:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._event.wait(), remaining_s)
            self._event.clear()

    def _note_service(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is ServiceStateChange.Removed:
            self._services.pop(name, None)
        elif state_change is ServiceStateChange.Added and name in self._services:
            return  # The answer to the other kind of question came before.
        elif _is_sound(name) and (name in self._services or len(self._services) < MOST_ADDRESSES):
            self._services[name] = None
        self._event.set()

    async def _ask_details(self, zeroconf: Zeroconf) -> None:
        """Set missing details of services from zeroconf's cache, or ask for them."""
        missing = [name for name, info in self._services.items() if info is None]
        asked = []
        for name in missing:
            info = ServiceInfo(SERVICE_TYPE, name)
            if info.load_from_cache(zeroconf):
                self._services[name] = info
            else:
                asked.append(info)
        answers = await asyncio.gather(*(info.async_request(zeroconf, _DETAILS_MS) for info in asked[:_MOST_ASKED]))
        for info, has_answered in zip(asked, answers, strict=False):
            if has_answered and info.name in self._services:
                self._services[info.name] = info


def _is_sound(name: str) -> bool:
    """Return whether this service name is valid. zeroconf also reports names that ServiceInfo refuses."""
    try:
        ServiceInfo(SERVICE_TYPE, name)
    except Error:
        return False
    return True


class _LinkPosition:
    """IP addresses and networks of this host, from which it chooses the address to reach a daemon."""

    def __init__(self) -> None:
        found = [ip for adapter in ifaddr.get_adapters() for ip in adapter.ips]
        texts = [(ip.ip if isinstance(ip.ip, str) else ip.ip[0], ip.network_prefix) for ip in found]
        self.own = {ip_address(ip) for ip, _ in texts}
        self._networks = [ip_network(f"{ip}/{prefix}", strict=False) for ip, prefix in texts]

    def best_address(self, info: ServiceInfo) -> _IP | None:
        """Return the address by which this host best reaches a daemon: in a network of this host, and IPv4 first."""
        ips = [ip_address(text) for text in info.parsed_scoped_addresses()]
        # Prefer addresses that this host doesn't have: many hosts have the same address of a bridge or the like. If it
        # has all of them, the daemon is on this host.
        distinct = [ip for ip in ips if ip not in self.own] or ips
        return min(distinct, key=lambda ip: (not self._is_near(ip), ip.version), default=None)

    def _is_near(self, ip: _IP) -> bool:
        return any(ip in network for network in self._networks)


def create(name: Name, settings: Settings) -> LinkResolver:
    """Make the resolver of a name.

    Raises:
        InvalidParameter: The name is invalid.
        OperationForbidden: The settings have a token but no TLS, so any host that announces a daemon would get it.
    """
    name.allow_options("interface", "wait")
    if name.authority or name.path:
        raise name.error("it stands for all daemons on the link; use mdns:///, or mdns:///?interface=IP")
    if settings.token_file and not settings.tls_ca:
        raise OperationForbidden(
            "the token would be shown to whoever announces a daemon; set tls_ca, or no token_file", place=name.text
        )
    interface = name.options.get("interface", "")
    try:
        interface = interface and str(ip_address(interface))
    except ValueError as error:
        raise name.error(f"interface is {interface!r}; give the IP address of one of this host's") from error
    return LinkResolver(name.text, interface, name.seconds("wait", _FIRST_S))
