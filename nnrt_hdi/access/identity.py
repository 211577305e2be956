"""Identity of a client, and its rights."""

import re
from dataclasses import dataclass, field
from enum import IntEnum

from nnrt_hdi.errors import InvalidParameter, OperationForbidden

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""Names that identities may have."""

# Characters of a wrong name that an error shows.
_SHOWN = 80


class Role(IntEnum):
    """Rights of an identity. Each role includes the rights of the lower ones."""

    OBSERVE = 1
    """Ask for the device's state, its supported operators and the identity's own counters."""
    RUN = 2
    """Run models that are in the daemon's store, or caches that the daemon has signed."""
    COMPILE = 3
    """Compile models."""
    RESTORE = 4
    """Import caches of other daemons and programs in the device's own format, and export compiled models."""
    SERVE = 5
    """Run models on behalf of other identities, for which these runs then count."""
    ADMINISTER = 6
    """Read the counters of all identities, and open sessions when the daemon is full for others."""

    def __str__(self) -> str:
        return self.name.lower()


ROLES = tuple(map(str, Role))


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a client, from an authority other than the client's own claim."""

    # Source of the name: "name" is the access file, "certificate" TLS, "user" the kernel (a user of this host), "host"
    # the client's address, if nothing else is known.
    kind: str
    name: str
    role: Role = Role.ADMINISTER
    # Kind and value of the credential in the access file that proved the identity.
    credential: tuple[str, str] = field(default=("", ""), compare=False, repr=False)
    # User id from the kernel, for clients of a Unix socket.
    user_id: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        # The name in a certificate may have any characters, and goes to logs.
        name = repr(self.name) if self.kind == "certificate" else self.name
        return name if self.is_named else f"{self.kind} {name}"

    @property
    def is_proven(self) -> bool:
        """True if no other client can have this identity."""
        return self.kind != "host"

    @property
    def is_named(self) -> bool:
        """True if an access file has given it its name."""
        return self.kind == "name"

    def is_same(self, other: "Identity") -> bool:
        """Return whether both are the same client, regardless of roles."""
        return (self.kind, self.name) == (other.kind, other.name)

    def require(self, role: Role, what: str) -> None:
        """Raise OperationForbidden unless the identity has `role` or a higher one. `what` names the operation."""
        if self.role < role:
            raise OperationForbidden(
                f"{self} has the role {str(self.role)!r}, and {what} needs {str(role)!r}; ask whoever keeps the"
                " daemon's --access file"
            )


def require_name(name: object, place: str) -> str:
    """Return the name of an identity; raise InvalidParameter if no identity can have it."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        shown = name[:_SHOWN] if isinstance(name, str) else name
        raise InvalidParameter(
            f"it is {shown!r}; give an identity's name: at most 64 letters, digits and ._@-, beginning with a letter"
            " or digit",
            place=place,
        )
    return name


# Identity of all clients where identities aren't checked.
ANYBODY = Identity("host", "")
