"""What a reactor serves."""

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Protocol

# A descriptor and what is ready there, as `select` gives them.
Event = tuple[int, int]
# What takes less is over before another thread would have begun with something else.
QUICK_NS = 200_000
# Called before anything that may take longer: with the nanoseconds that it usually takes, None where nobody knows.
HandOver = Callable[[int | None], None]


class Served(Protocol):
    """A connection."""

    @property
    def user(self) -> Hashable:
        """The user it belongs to: one quick request of each is served at a time, however many connections each has."""

    @property
    def session(self) -> Hashable:
        """The session of the user that it belongs to: those are served one after another."""

    def fileno(self) -> int: ...

    def serve(self, hand_over: HandOver) -> "bool | Joint":
        """Answer what has come, without waiting for more; whether the connection goes on. Or have it answered together
        with others that are ready. What it raises ends the connection, and is logged."""

    def close(self) -> None:
        """It is served no more."""


class Joint(Protocol):
    """Answers several connections at once."""

    def answer(self, connections: Sequence[Served], hand_over: HandOver) -> Collection[Served]:
        """Answer what these connections have received, when all that were ready have been asked, and give those that
        don't go on. They are served no more until then. What it raises ends them all, and is logged."""
