"""Memory that all runs together may allocate at a time, and the slots that long ones may have."""

from collections.abc import Hashable

from nnrt_device_service.settings import LimitReached


class RunMemory:
    """Limited number of bytes, from which each run takes as many as it is going to allocate. Not thread-safe.

    Long runs also take one of `long_slots`.
    """

    __slots__ = ("_long", "_long_slots", "left_bytes", "limit_bytes", "taken")

    def __init__(self, limit_bytes: int, long_slots: int) -> None:
        self.limit_bytes = limit_bytes
        self.left_bytes = limit_bytes
        # Bytes taken, by run.
        self.taken: dict[Hashable, int] = {}
        self._long_slots = long_slots
        self._long: set[Hashable] = set()

    @property
    def taken_bytes(self) -> int:
        """Bytes that runs have taken."""
        return self.limit_bytes - self.left_bytes

    def require_possible(self, size_bytes: int) -> None:
        """Raise OutOfMemory if the size exceeds the limit."""
        if size_bytes > self.limit_bytes:
            raise LimitReached(
                f"the run makes {size_bytes} bytes at a time; the daemon's limit (--run-bytes) is {self.limit_bytes}:"
                " run smaller batches, or raise it",
                "--run-bytes",
            )

    def has_left(self, size_bytes: int) -> bool:
        return size_bytes <= self.left_bytes

    def has_slot(self, is_long: bool) -> bool:
        return not is_long or len(self._long) < self._long_slots

    def take(self, run: Hashable, size_bytes: int, is_long: bool) -> None:
        """Take bytes for a run that has none, and a slot if it is long; `has_left` and `has_slot` must be true."""
        self.taken[run] = size_bytes
        self.left_bytes -= size_bytes
        if is_long:
            self._long.add(run)

    def give_back(self, run: Hashable) -> None:
        """Release the bytes that a run has taken, if any, and its slot."""
        self.left_bytes += self.taken.pop(run, 0)
        self._long.discard(run)
