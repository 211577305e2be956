"""Who calls, as far as gRPC knows."""

from typing import Any
from urllib.parse import unquote

from nnrt_device_service.access.access_file import AccessFile, Credentials
from nnrt_device_service.access.identity import Identity
from nnrt_hdi.errors import ConnectionFailed

_BEARER = "Bearer "


class Identities:
    """Tells who opens a session. Looked up once for each."""

    def __init__(self, access: AccessFile | None) -> None:
        self._access = access

    def of(self, context: Any) -> Identity:
        """Who makes a call. Raises ConnectionFailed where the daemon has an access file that doesn't say."""
        shown = self._shown(context)
        return shown.identity() if self._access is None else self._access.identity(shown)

    def still_holds(self, identity: Identity) -> bool:
        """Tell whether a client may go on as it was let in."""
        return self._access is None or self._access.still_holds(identity)

    def _shown(self, context: Any) -> Credentials:
        names = context.auth_context().get("x509_common_name", [b""])
        return Credentials(
            host=host_of(context.peer()), token=_token_of(context), certificate=names[0].decode(errors="replace")
        )


def host_of(peer: str) -> str:
    """The host that a peer of gRPC's is on; `unix` where it is this one, by a Unix socket."""
    transport, _, address = peer.partition(":")
    return unquote(address.rpartition(":")[0]).strip("[]") if transport in ("ipv4", "ipv6") else transport


def _token_of(context: Any) -> bytes:
    for key, value in context.invocation_metadata():
        if key == "authorization":
            if not value.startswith(_BEARER):
                raise ConnectionFailed("the metadata `authorization` has no token; send `Bearer TOKEN`")
            return str(value).removeprefix(_BEARER).encode(errors="replace")
    return b""
