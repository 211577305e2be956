"""Payers: whom runs count for, their session's identity or another one that the client serves."""

from collections.abc import Callable
from typing import Protocol
from weakref import WeakValueDictionary

from nnrt_device_service.access.counters import Counters, Usage
from nnrt_device_service.scheduling.flows import Account
from nnrt_device_service.scheduling.scheduler import Scheduler
from nnrt_hdi.access.identity import Identity, Role, require_name

# Returns the role that the access file gives a name, or None if it doesn't have the name.
RoleOf = Callable[[str], Role | None]


class Payer(Protocol):
    """Whom a run counts for: an identity, with an account at the scheduler and with counters."""

    identity: Identity
    account: Account
    usage: Usage


class ServedIdentity:
    """Identity on whose behalf a server runs models. The models and all memory are those of the server's session."""

    __slots__ = ("__weakref__", "account", "identity", "usage")

    def __init__(self, name: str, server: Identity, scheduler: Scheduler, counters: Counters) -> None:
        """Make it; of its users, the server counts as one."""
        self.identity = Identity("name", name, Role.RUN)
        self.usage = counters.hold(self.identity, self)
        self.account = scheduler.account(str(self.identity), str(server), self.usage.runs)


class ServedIdentities:
    """Identities on whose behalf the client of one session runs models.

    One is kept as long as a description or a run refers to it, so the limits of these limit their number, too.
    """

    def __init__(self, scheduler: Scheduler, counters: Counters, role_of: RoleOf) -> None:
        self._scheduler = scheduler
        self._counters = counters
        self._role_of = role_of
        self._known: WeakValueDictionary[str, ServedIdentity] = WeakValueDictionary()

    def find(self, name: str, server: Identity) -> ServedIdentity | None:
        """Return the identity on whose behalf a run of the session's identity `server` is, or None without a name.

        Raises OperationForbidden if the server lacks Role.SERVE, or if the access file gives the named identity a role
        below Role.RUN, and InvalidParameter for a name that no identity can have. If the file doesn't have the name,
        the server's word counts.
        """
        if not name:
            return None
        server.require(Role.SERVE, "a run on behalf of another identity")
        if (role := self._role_of(require_name(name, "on_behalf_of"))) is not None:
            Identity("name", name, role).require(Role.RUN, "a run on its behalf")
        found = self._known.get(name)
        if found is None:
            # Two threads may make one each, which does no harm: both count for the same identity.
            found = self._known[name] = ServedIdentity(name, server, self._scheduler, self._counters)
        return found

    def is_barred(self, name: str, server: Identity) -> bool:
        """Return whether `find` would now refuse a name that it has taken before."""
        role = self._role_of(name)
        return server.role < Role.SERVE or (role is not None and role < Role.RUN)
