"""Resolvers of dns:///HOST:PORT, dns:///_SERVICE._tcp.DOMAIN and dns://SERVER/NAME.

This host's name service looks up the first kind, dnspython the others. If a host has both IPv4 and IPv6 addresses, the
resolver uses only IPv4, or only IPv6 with `family=6`, because each address counts as one daemon.
"""

import socket
from ipaddress import ip_address

from nnrt_client.resolvers.names import Name
from nnrt_client.resolvers.resolver import PollingResolver, Resolver
from nnrt_client.resolvers.targets import Families, order_addresses, prefer_family
from nnrt_client.settings import Settings
from nnrt_hdi.errors import ConnectionFailed
from nnrt_hdi.ports import port_number

# Seconds between look-ups. The host's name service doesn't report how long an answer is valid; it may cache answers.
_EVERY_S = 1.0
_LOOK_UP_S = 5.0
_DNS_PORT = 53
_FAMILIES = {"": (4, 6), "4": (4,), "6": (6,)}
# Errors that mean that the name doesn't exist or has no address now, which is an answer as well.
_NO_ADDRESS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


class HostResolver(PollingResolver):
    """Resolver of a host name by this host's name service (getaddrinfo)."""

    if_empty = ": its host is not found; check the name, or give an IP address"

    def __init__(self, name: str, host: str, port: int, families: Families, every_s: float) -> None:
        super().__init__(name, every_s + _LOOK_UP_S)
        self._host, self._port, self._families, self._every_s = host, port, families, every_s

    def _ask(self) -> tuple[tuple[str, ...], float]:
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno not in _NO_ADDRESS:
                raise ConnectionFailed(f"the host is not found: {error.strerror}", place=self.name) from error
            found = []
        except (OSError, ValueError) as error:  # ValueError is for an invalid name.
            raise ConnectionFailed(f"the host is not found: {error}", place=self.name) from error
        ips = {ip_address(target[0]) for *_, target in found}
        return order_addresses((ip, self._port) for ip in prefer_family(ips, self._families)), self._every_s


def create(name: Name, settings: Settings) -> Resolver:
    """Make the resolver of a name. Raise InvalidParameter, or ModuleNotFoundError if it needs dnspython."""
    name.allow_options("every", "family")
    families = _families(name)
    every_s = name.seconds("every", _EVERY_S) if "every" in name.options else None
    host, port = name.path, 0
    if not _is_service(name.path):
        host, port = _host_and_port(name, name.path)
        if not name.authority:
            return HostResolver(name.text, host, port, families, every_s or _EVERY_S)
    from nnrt_client.resolvers.name_server import NameServerResolver

    server = _server(name) if name.authority else None
    return NameServerResolver(name.text, host, port, families, server, every_s, settings.query_timeout_s)


def _families(name: Name) -> Families:
    family = name.options.get("family", "")
    if family not in _FAMILIES:
        raise name.error(f"family is {family!r}; use 4 or 6, or leave it out")
    return _FAMILIES[family]


def _is_service(path: str) -> bool:
    """Return whether the path names SRV records, such as _nnrt._tcp.example.org. Those contain the ports."""
    return path.startswith("_") and ":" not in path


def _host_and_port(name: Name, text: str, default: str = "") -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon and default:
        host, port = text, default
    if host and (number := port_number(port)) is not None:
        return host.strip("[]"), number
    raise name.error(f"{text!r} is no HOST:PORT; use dns:///HOST:PORT, or dns:///_nnrt._tcp.DOMAIN for SRV records")


def _server(name: Name) -> tuple[str, int]:
    host, port = _host_and_port(name, name.authority, str(_DNS_PORT))
    try:
        return str(ip_address(host)), port
    except ValueError as error:
        raise name.error(f"the name server is {host!r}; give its IP address") from error
