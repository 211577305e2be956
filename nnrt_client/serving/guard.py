"""Guard: finds out who calls, and refuses those who may not, or who ask for too much at a time."""

import asyncio
from collections import Counter
from contextlib import ExitStack

from nnrt_client.serving.call import Call
from nnrt_client.serving.errors import Busy, Denied, UnknownCaller
from nnrt_hdi.access.access_file import AccessFile, Credentials
from nnrt_hdi.access.audit import AuditLog
from nnrt_hdi.access.callers import source_at, token_of
from nnrt_hdi.access.identity import Identity, Role
from nnrt_hdi.access.refusals import DELAY_S, Refusals
from nnrt_hdi.errors import ConnectionFailed

# Unknown callers of one host whose refusals are delayed at a time.
_MOST_DELAYED = 32
_SUMMARY_S = 60.0


class Guard:
    """Guard of a server. Only the server's loop uses it."""

    def __init__(
        self, access: AccessFile | None = None, audit: AuditLog | None = None, most_of_identity: int = 0
    ) -> None:
        """Create it.

        Args:
            access: Identities that may call; without it everybody may do everything.
            audit: Log of refusals, and of what administrators do.
            most_of_identity: Requests for inferences of one identity under way; 0 for no limit.
        """
        self._access = access
        self._audit = audit or AuditLog("")
        self._refusals = Refusals(self._audit, _MOST_DELAYED)
        self._most_of_identity = most_of_identity
        # Requests under way by identity, if they have a limit; nothing of those that have none.
        self._under_way: Counter[str] = Counter()

    async def admit(self, call: Call, stack: ExitStack) -> None:
        """Set the identity of a call, and count its request until the stack is closed.

        Raises:
            UnknownCaller: The access file doesn't know the caller.
            Denied: The role of the caller is too low.
            Busy: The caller has too many requests under way, or sent too many wrong tokens.
        """
        role = call.role
        if role is None:
            return
        call.identity = identity = await self._identify(call)
        if identity.role < role:
            error = Denied(
                f"{identity} has the role {str(identity.role)!r}, and {call.name} needs {str(role)!r}; ask whoever"
                " keeps the server's --access file"
            )
            self._refusals.audit(str(identity), identity, peer=call.peer, call=call.name, cause=str(error))
            raise error
        if role is Role.RUN and self._most_of_identity:
            self._count(str(identity), stack)

    def audit(self, call: Call) -> None:
        """Audit a call that has ended, if it was an administrator's."""
        if call.role is Role.ADMINISTER and call.identity is not None and call.identity.role >= Role.ADMINISTER:
            about = {"peer": call.peer, "call": call.name, "model": call.model, "status": call.status}
            self._audit.write("administered", call.identity, **about)

    async def watch(self) -> None:
        """Audit once a minute how many refusals were only counted."""
        while True:
            await asyncio.sleep(_SUMMARY_S)
            self._refusals.summarize()

    def close(self) -> None:
        """Close the audit log."""
        self._refusals.summarize(is_last=True)
        self._audit.close()

    async def _identify(self, call: Call) -> Identity:
        """Return the identity of a caller. The refusals of a host that sends many wrong tokens are delayed."""
        if self._access is None:
            return Credentials(call.host, certificate=call.certificate()).identity()
        source, refusals = source_at(call.host), self._refusals
        with refusals.reserve_wait(source) as may_wait:
            try:
                token = token_of(call.metadata.get("authorization", ""))
                if token and not (may_wait or refusals.may_check(source)):
                    raise Busy(f"callers at {call.host} sent too many wrong tokens, so yours was not checked")
                shown = Credentials(call.host, token, call.certificate())
                if (found := self._access.find(shown)) is not None:
                    return found
                raise UnknownCaller(_why(shown))
            except ConnectionFailed as error:
                is_audited = refusals.audit(source, None, peer=call.peer, call=call.name, cause=str(error))
                if may_wait and not is_audited:
                    await asyncio.sleep(DELAY_S)
                raise error if isinstance(error, UnknownCaller) else UnknownCaller(error.message) from error

    def _count(self, identity: str, stack: ExitStack) -> None:
        if self._under_way[identity] >= self._most_of_identity:
            raise Busy(f"{identity} has {self._under_way[identity]} requests under way; try again later")
        self._under_way[identity] += 1
        stack.callback(self._uncount, identity)

    def _uncount(self, identity: str) -> None:
        self._under_way[identity] -= 1
        if not self._under_way[identity]:
            del self._under_way[identity]


def _why(shown: Credentials) -> str:
    """Return why nobody knows who showed these credentials, and what is right."""
    if shown.token:
        return "the server knows no such token (--access); look whether it was replaced"
    if shown.certificate:
        return f"the certificate is of {shown.certificate!r}, whom the server's --access file doesn't name"
    return "the call has no token; send `authorization: Bearer TOKEN`, as metadata of gRPC or as a header"
