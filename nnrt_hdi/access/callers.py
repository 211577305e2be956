"""Hosts and tokens of callers, from the words of transports."""

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from urllib.parse import unquote

from nnrt_hdi.access.identity import Identity
from nnrt_hdi.errors import ConnectionFailed

# Host name of callers on a Unix socket.
UNIX = "unix"
_LOOPBACK = "127.0.0.1"
# Bits of an IPv6 address that a host chooses itself (RFC 4291).
_INTERFACE_BITS = 64


@lru_cache(maxsize=1024)
def host_of(peer: str) -> str:
    """Return the host of a gRPC peer, or `unix` for a client on a Unix socket."""
    transport, _, rest = peer.partition(":")
    if transport not in ("ipv4", "ipv6"):
        return transport
    return host_at(unquote(rest.rpartition(":")[0]).strip("[]"))


@lru_cache(maxsize=1024)
def host_at(text: str) -> str:
    """Return the host at an IP address.

    All addresses of a 64-bit IPv6 network count as one host, and so do all loopback addresses.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if address.is_loopback:
        return _LOOPBACK
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address) >> _INTERFACE_BITS << _INTERFACE_BITS, _INTERFACE_BITS)))
    return str(address)


def source_at(host: str) -> str:
    """Return the name of a caller without a proven identity, made of its host."""
    return str(Identity("host", host))


def token_of(authorization: str) -> bytes:
    """Return the token in the value of `authorization`, empty without one. Raises ConnectionFailed if it has none."""
    scheme, _, token = authorization.partition(" ")
    if authorization and (scheme.lower() != "bearer" or not token):
        raise ConnectionFailed("`authorization` has no token; send `Bearer TOKEN`")
    return token.encode(errors="replace")
