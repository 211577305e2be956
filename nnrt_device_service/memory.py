"""How much memory a session may hold."""

import threading

from nnrt_hdi.errors import OutOfMemory


class MemoryBudget:
    """A number of bytes that constants and buffers share. Taken before memory is allocated."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self.used_bytes = 0

    def try_take(self, size_bytes: int) -> bool:
        with self._lock:
            if self.used_bytes + size_bytes > self._limit:
                return False
            self.used_bytes += size_bytes
            return True

    def take(self, size_bytes: int) -> None:
        """Raises OutOfMemory if it doesn't fit."""
        if not self.try_take(size_bytes):
            raise OutOfMemory(
                f"{size_bytes} more bytes pass this session's limit of {self._limit} ({self.used_bytes} are used);"
                " release models or buffers, or raise the daemon's --session-bytes"
            )

    def give_back(self, size_bytes: int) -> None:
        with self._lock:
            self.used_bytes -= size_bytes
