"""Identities of callers, from what gRPC knows about them."""

from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import unquote

from nnrt_device_service.transport.grpc.tickets import Tickets
from nnrt_hdi.access.access_file import AccessFile, Credentials
from nnrt_hdi.access.identity import Identity, Role
from nnrt_hdi.errors import ConnectionFailed, OutOfMemory
from nnrt_hdi.wire import TICKET_METADATA

# Host name of callers on a Unix socket.
UNIX = "unix"
_LOOPBACK = "127.0.0.1"
# Bits of an IPv6 address that a host chooses itself (RFC 4291).
_INTERFACE_BITS = 64


class Identities:
    """Finder of the identities of callers that open or resume sessions."""

    def __init__(self, access: AccessFile | None, tickets: Tickets) -> None:
        self._access = access
        self._tickets = tickets

    def identify(self, context: Any, may_check: Callable[[], bool] = lambda: True) -> Identity:
        """Return the caller's identity.

        Raises ConnectionFailed if the daemon has an access file that doesn't know the caller, and OutOfMemory if the
        caller sent a token and `may_check` returns False.
        """
        credentials = self._read_credentials(context)
        if credentials.token and not may_check():
            raise OutOfMemory(
                f"callers at {credentials.host} sent too many wrong tokens, so yours was not checked; try again in a"
                " second"
            )
        return credentials.identity() if self._access is None else self._access.identity(credentials)

    def role_of(self, name: str) -> Role | None:
        """Return the role of the identity of this name, or None if there is no access file or it lacks the name."""
        return None if self._access is None else self._access.role_of(name)

    def is_valid(self, identity: Identity) -> bool:
        """Return whether the access file still grants a client's identity at least its role."""
        return self._access is None or self._access.is_valid(identity)

    def _read_credentials(self, context: Any) -> Credentials:
        names = context.auth_context().get("x509_common_name", [b""])
        host = host_of(context.peer())
        # Tickets count only on the Unix socket that they are for: other callers may not be able to reach it.
        ticket = _metadata(context, TICKET_METADATA) if host == UNIX else None
        return Credentials(
            host=host,
            token=_token(_metadata(context, "authorization") or ""),
            certificate=names[0].decode(errors="replace"),
            user_id=self._tickets.redeem(ticket) if ticket else None,
        )


@lru_cache(maxsize=1024)
def host_of(peer: str) -> str:
    """Return the host of a gRPC peer, or `unix` for a client on a Unix socket.

    All addresses of a 64-bit IPv6 network count as one host, and so do all loopback addresses.
    """
    transport, _, rest = peer.partition(":")
    if transport not in ("ipv4", "ipv6"):
        return transport
    text = unquote(rest.rpartition(":")[0]).strip("[]")
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


def source_of(peer: str) -> str:
    """Return the name of a caller without a proven identity, made of its host."""
    return str(Identity("host", host_of(peer)))


def _metadata(context: Any, name: str) -> Any:
    return next((value for key, value in context.invocation_metadata() if key == name), None)


def _token(authorization: str) -> bytes:
    scheme, _, token = authorization.partition(" ")
    if authorization and (scheme.lower() != "bearer" or not token):
        raise ConnectionFailed("the metadata `authorization` has no token; send `Bearer TOKEN`")
    return token.encode(errors="replace")
