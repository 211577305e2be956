"""The memory that runs may make at a time, all together."""

from collections.abc import Hashable

from nnrt_device_service.settings import LimitReached


class RunMemory:
    """A number of bytes, of which runs take what they are going to make. Not safe for threads."""

    __slots__ = ("left_bytes", "limit_bytes", "taken")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.left_bytes = limit_bytes
        # By the runs that have taken some.
        self.taken: dict[Hashable, int] = {}

    @property
    def taken_bytes(self) -> int:
        """The memory that runs have taken."""
        return self.limit_bytes - self.left_bytes

    def require_possible(self, size_bytes: int) -> None:
        """Raises OutOfMemory for more than there are."""
        if size_bytes > self.limit_bytes:
            raise LimitReached(
                f"the run makes {size_bytes} bytes at a time; the daemon's limit (--run-bytes) is {self.limit_bytes}:"
                " run smaller batches, or raise it",
                "--run-bytes",
            )

    def has_left(self, size_bytes: int) -> bool:
        return size_bytes <= self.left_bytes

    def take(self, run: Hashable, size_bytes: int) -> None:
        """Take bytes, which are left, for a run that has none."""
        self.taken[run] = size_bytes
        self.left_bytes -= size_bytes

    def give_back(self, run: Hashable) -> None:
        """Give back what a run has taken, if anything."""
        self.left_bytes += self.taken.pop(run, 0)
