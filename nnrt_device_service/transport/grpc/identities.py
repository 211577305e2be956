"""The identities of callers, as far as gRPC knows them."""

from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import unquote

from nnrt_device_service.access.access_file import AccessFile, Credentials
from nnrt_device_service.access.identity import Identity
from nnrt_device_service.transport.grpc.tickets import Tickets
from nnrt_hdi.errors import ConnectionFailed, OutOfMemory
from nnrt_hdi.wire import TICKET_METADATA

# The host of those who come by a Unix socket.
UNIX = "unix"
_LOOPBACK = "127.0.0.1"
# Of an IPv6 address, those that a host chooses itself (RFC 4291).
_INTERFACE_BITS = 64


class Identities:
    """Tells who opens a session. Looked up once for each."""

    def __init__(self, access: AccessFile | None, tickets: Tickets) -> None:
        self._access = access
        self._tickets = tickets

    def of(self, context: Any, may_look: Callable[[], bool] = lambda: True) -> Identity:
        """The caller's identity. Raises ConnectionFailed where the daemon has an access file that doesn't say, and
        OutOfMemory for a token where none may be looked at."""
        shown = self._shown(context)
        if shown.token and not may_look():
            raise OutOfMemory(
                f"so many callers at {shown.host} have shown wrong tokens that yours was not looked at; try again in a"
                " second"
            )
        return shown.identity() if self._access is None else self._access.identity(shown)

    def still_holds(self, identity: Identity) -> bool:
        """Tell whether a client may go on as it was let in."""
        return self._access is None or self._access.still_holds(identity)

    def _shown(self, context: Any) -> Credentials:
        names = context.auth_context().get("x509_common_name", [b""])
        host = host_of(context.peer())
        # Whoever comes another way may not reach the socket that the ticket is for.
        ticket = _metadata(context, TICKET_METADATA) if host == UNIX else None
        return Credentials(
            host=host,
            token=_token(_metadata(context, "authorization") or ""),
            certificate=names[0].decode(errors="replace"),
            user_id=self._tickets.user_of(ticket) if ticket else None,
        )


@lru_cache(maxsize=1024)
def host_of(peer: str) -> str:
    """The host that a peer of gRPC's is on; `unix` where it is this one, by a Unix socket.

    A host may call from any address of its IPv6 network, of 64 bits, and from any of loopback: those are one.
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
    """The name of a caller without an identity: that of its host."""
    return str(Identity("host", host_of(peer)))


def _metadata(context: Any, name: str) -> Any:
    return next((value for key, value in context.invocation_metadata() if key == name), None)


def _token(authorization: str) -> bytes:
    scheme, _, token = authorization.partition(" ")
    if authorization and (scheme.lower() != "bearer" or not token):
        raise ConnectionFailed("the metadata `authorization` has no token; send `Bearer TOKEN`")
    return token.encode(errors="replace")
