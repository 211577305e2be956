"""Intake: bounds the bytes of the requests under way, so that clients can't fill the memory of the host."""

from typing_extensions import Self

from nnrt_client.serving.errors import Busy, TooLarge


class Intake:
    """Bytes that requests hold, of all faces together. Only the server's loop uses it."""

    def __init__(self, request_bytes: int, held_bytes: int) -> None:
        """Create it. A request has at most `request_bytes`, all together at most `held_bytes`."""
        self.request_bytes = request_bytes
        self.held_bytes = held_bytes
        # Bytes that requests hold now.
        self.taken_bytes = 0

    def request(self) -> "Held":
        """Return what a request holds, a context manager that gives it back."""
        return Held(self)


class Held:
    """Bytes that a request holds: those that were read, and those of its tensors in shared memory."""

    __slots__ = ("_bytes", "_intake")

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._bytes = 0

    def take(self, size_bytes: int) -> None:
        """Hold more bytes; called before they are read.

        Raises:
            TooLarge: The request has too many.
            Busy: All requests together have too many.
        """
        intake = self._intake
        if self._bytes + size_bytes > intake.request_bytes:
            raise TooLarge(f"it has {self._bytes + size_bytes} bytes or more; use at most {intake.request_bytes}")
        if intake.taken_bytes + size_bytes > intake.held_bytes:
            raise Busy(f"requests under way hold {intake.taken_bytes} bytes; try again later")
        self._bytes += size_bytes
        intake.taken_bytes += size_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._intake.taken_bytes -= self._bytes
        self._bytes = 0
