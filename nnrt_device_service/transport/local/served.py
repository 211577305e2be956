"""Interfaces of the connections that a reactor serves, and of the batchers that answer several together."""

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Protocol

# Descriptor and event mask, as `epoll.poll` returns them.
Event = tuple[int, int]
# Work shorter than this ends before another thread could have taken over.
QUICK_NS = 200_000
# Called before work that may take longer, with the nanoseconds that it usually takes, or None if that is not known.
HandOver = Callable[[int | None], None]


class ServedConnection(Protocol):
    """Connection that a reactor serves."""

    @property
    def user(self) -> Hashable:
        """User that the connection belongs to; users take turns, however many connections each has."""

    @property
    def session(self) -> Hashable:
        """Session that the connection belongs to; the sessions of a user take turns."""

    def fileno(self) -> int: ...

    def serve(self, hand_over: HandOver) -> "bool | Batcher":
        """Answer what has arrived, without waiting for more, and return whether the connection goes on.

        Calls `hand_over` before work that may take long. Returns a Batcher if the batcher is to answer this connection
        together with other ready ones. An exception ends the connection and is logged.
        """

    def close(self) -> None:
        """Release the connection, which the reactor serves no more."""


class Batcher(Protocol):
    """Batcher, which answers several connections together by computing their runs in batches."""

    def answer(self, connections: Sequence[ServedConnection], hand_over: HandOver) -> Collection[ServedConnection]:
        """Answer the requests that these connections have received, and return the connections that have ended.

        The reactor calls this after it has asked all ready connections, and doesn't serve these meanwhile. An exception
        ends all of them and is logged.
        """
