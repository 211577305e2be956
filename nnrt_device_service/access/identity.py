"""The identity of a client, and its rights."""

from dataclasses import dataclass, field
from enum import IntEnum

from nnrt_hdi.errors import OperationForbidden


class Role(IntEnum):
    """Rights of an identity; each role has those of the roles before it."""

    OBSERVE = 1
    """Ask for the device's state, what it supports, and what the identity itself has had."""
    RUN = 2
    """Run models that the daemon's store has already, or caches that the daemon has signed."""
    COMPILE = 3
    """Have models compiled."""
    RESTORE = 4
    """Bring caches made elsewhere and programs in the device's own format, and take out what was compiled."""
    ADMINISTER = 5
    """See what all have had, and get in where the daemon has no place left for others."""

    def __str__(self) -> str:
        return self.name.lower()


ROLES = tuple(map(str, Role))


@dataclass(frozen=True, slots=True)
class Identity:
    """A client, as something better than its own word says who it is."""

    # What says so: "name" is the access file's; "certificate", "user" (of this host, by the kernel), or "host" where
    # nothing is known but where it calls from.
    kind: str
    name: str
    role: Role = Role.ADMINISTER
    # The kind and value in the access file's line that it was known by.
    known_by: tuple[str, str] = field(default=("", ""), compare=False, repr=False)
    # By the kernel's word, where that was asked.
    user_id: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        # What a certificate says may be anything, and stands in logs.
        name = repr(self.name) if self.kind == "certificate" else self.name
        return name if self.kind == "name" else f"{self.kind} {name}"

    @property
    def is_proven(self) -> bool:
        """True where no other client can be the same."""
        return self.kind != "host"

    def is_same(self, other: "Identity") -> bool:
        """Tell if both are one client, whatever their roles."""
        return (self.kind, self.name) == (other.kind, other.name)

    def require(self, role: Role, what: str) -> None:
        """Raises OperationForbidden unless it has that role, or a greater one."""
        if self.role < role:
            raise OperationForbidden(
                f"{self} has the role {str(self.role)!r}, and {what} needs {str(role)!r}; ask whoever keeps the"
                " daemon's --access file"
            )


# Whoever it is, where nobody asks.
ANYBODY = Identity("host", "")
