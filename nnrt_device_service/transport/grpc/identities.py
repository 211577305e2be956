"""Identities of callers, from what gRPC knows about them."""

from collections.abc import Callable
from typing import Any

from nnrt_device_service.transport.grpc.tickets import Tickets
from nnrt_hdi.access.access_file import AccessFile, Credentials
from nnrt_hdi.access.callers import UNIX, host_of, token_of
from nnrt_hdi.access.identity import Identity, Role
from nnrt_hdi.errors import OutOfMemory
from nnrt_hdi.wire import TICKET_METADATA


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
            token=token_of(_metadata(context, "authorization") or ""),
            certificate=names[0].decode(errors="replace"),
            user_id=self._tickets.redeem(ticket) if ticket else None,
        )


def _metadata(context: Any, name: str) -> Any:
    return next((value for key, value in context.invocation_metadata() if key == name), None)
