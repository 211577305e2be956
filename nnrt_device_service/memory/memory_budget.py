"""Memory budgets of a session, of an identity's sessions, and of all sessions together."""

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Optional
from weakref import WeakSet, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from nnrt_device_service.settings import LimitReached
from nnrt_hdi.errors import OutOfMemory
from nnrt_hdi.files.container import LARGE_BYTES
from nnrt_hdi.files.unnamed_file import file_memory

# Least cost of a reservation, so that a million empty buffers are not free.
LEAST_BYTES = 1024
_NOTHING: AbstractContextManager[None] = nullcontext()


class MemoryBudget:
    """Limited number of bytes, reserved before memory is allocated.

    A budget may be part of a whole, which limits what all its parts reserve together.
    """

    def __init__(
        self,
        limit_bytes: int,
        whole: Optional["MemoryBudget"] = None,
        whose: str = "this session's",
        setting: str = "--session-bytes",
    ) -> None:
        self.limit_bytes = limit_bytes
        self._whole = whole
        self._whose = whose
        self._setting = setting
        self._lock = threading.Lock()
        self._reclaims: list[Callable[[], bool]] = []
        self._parts: WeakSet[MemoryBudget] = WeakSet()
        # Bytes in use, in a list that outlives this budget.
        self._used = [0]
        # Bytes that parts still had in use when they were garbage collected.
        self._left_by_parts: deque[Sequence[int]] = deque()
        if whole is not None:
            with whole._lock:
                whole._parts.add(self)
            # The garbage collector may run under any lock, so the finalizer takes none; `_collect_from_parts` does.
            weakref.finalize(self, whole._left_by_parts.append, self._used).atexit = False

    @property
    def used_bytes(self) -> int:
        """Bytes that are reserved."""
        self._collect_from_parts()
        with self._lock:
            return self._used[0]

    def close(self) -> None:
        """Reclaim all bytes that nothing needs.

        Bytes in use count until they are released, or until the budget is garbage collected.
        """
        while self._reclaim():
            pass
        self._reclaims = []

    def on_shortage(self, reclaim: Callable[[], bool]) -> None:
        """Register a function to call when bytes don't fit: it releases some, or returns False if it has none."""
        self._reclaims.append(reclaim)

    @property
    def root(self) -> "MemoryBudget":
        """Budget that all parts belong to."""
        return self if self._whole is None else self._whole.root

    def reserve(self, size_bytes: int, *, is_shared: bool = False) -> None:
        """Reserve bytes, after reclaiming unneeded ones if necessary; raise OutOfMemory if they don't fit.

        `is_shared`: the bytes count in the root already, because another session uses them, too.
        """
        cost = max(size_bytes, LEAST_BYTES)
        while short := self._try_reserve(cost, is_shared):
            if cost > short.limit_bytes or not (self._reclaim() or short._reclaim_of_parts() or short._reclaim()):
                raise LimitReached(
                    f"{cost} more bytes pass {short._whose} limit of {short.limit_bytes} ({short.used_bytes} are used);"
                    f" release models or buffers, or raise the daemon's {short._setting}"
                    " (see docs/reference/errors.md)",
                    short._setting,
                )

    def reserve_anyway(self, size_bytes: int, *, is_shared: bool = False) -> None:
        """Reserve bytes that are in use, even beyond the limit. `is_shared` is that of `reserve`."""
        if is_shared and self._whole is None:
            return
        with self._lock:
            self._used[0] += max(size_bytes, LEAST_BYTES)
        if self._whole is not None:
            self._whole.reserve_anyway(size_bytes, is_shared=is_shared)

    def release(self, size_bytes: int, *, is_shared: bool = False) -> None:
        self._give_back(max(size_bytes, LEAST_BYTES), is_shared=is_shared)

    def reserved(self, size_bytes: int) -> AbstractContextManager[None]:
        """Reserve bytes while the block lasts, 0 bytes at no cost; raise OutOfMemory if they don't fit."""
        return self._reserved(size_bytes) if size_bytes else _NOTHING

    @contextmanager
    def _reserved(self, size_bytes: int) -> Iterator[None]:
        self.reserve(size_bytes)
        try:
            yield
        finally:
            self.release(size_bytes)

    def allocate(self, size_bytes: int, directory: str = "") -> NDArray[np.uint8]:
        """Reserve and return zeroed memory; raise OutOfMemory if it doesn't fit or the host has none.

        With a `directory`, large memory is in a file there, if possible: see `drop_pages`. The caller releases the
        bytes.
        """
        self.reserve(size_bytes)
        is_in_file = directory and size_bytes >= LARGE_BYTES
        try:
            memory = file_memory(Path(directory), size_bytes) if is_in_file else None
            return np.zeros(size_bytes, np.uint8) if memory is None else np.frombuffer(memory, np.uint8)
        except MemoryError as error:
            self.release(size_bytes)
            raise OutOfMemory(f"the daemon's host has no {size_bytes} bytes left; ask for less") from error

    def _try_reserve(self, cost: int, is_shared: bool) -> Optional["MemoryBudget"]:
        """Reserve bytes in this budget and in all that it is part of, or in none of them.

        Returns None, or the budget that has too few bytes left. `is_shared` is that of `reserve`.
        """
        if is_shared and self._whole is None:
            return None
        if not self._take(cost):
            return self
        short = self._whole._try_reserve(cost, is_shared) if self._whole is not None else None
        if short is not None:
            with self._lock:
                self._used[0] -= cost
        return short

    def _take(self, cost: int) -> bool:
        self._collect_from_parts()
        with self._lock:
            if self._used[0] + cost > self.limit_bytes:
                return False
            self._used[0] += cost
            return True

    def _collect_from_parts(self) -> None:
        """Release bytes that parts had in use when they were garbage collected.

        Called without the lock, as no thread may hold the locks of two budgets.
        """
        with suppress(IndexError):
            while True:
                self._give_back(*self._left_by_parts.popleft())

    def _give_back(self, cost: int, *, is_shared: bool = False) -> None:
        if is_shared and self._whole is None:
            return
        with self._lock:
            self._used[0] -= cost
        if self._whole is not None:
            self._whole._give_back(cost, is_shared=is_shared)

    def _reclaim(self) -> bool:
        return any(reclaim() for reclaim in self._reclaims)

    def _reclaim_of_parts(self) -> bool:
        before = self.used_bytes
        with self._lock:
            parts = list(self._parts)
        return any(part._reclaim() or part._reclaim_of_parts() for part in parts) or self.used_bytes < before


class SharedBudget(MemoryBudget):
    """Budget of all sessions together, with a part for the sessions of each identity."""

    def __init__(self, limit_bytes: int, share_bytes: int) -> None:
        super().__init__(limit_bytes, whose="the daemon's", setting="--held-bytes")
        self._share_bytes = share_bytes
        self._shares_lock = threading.Lock()
        # Budgets of identities that have sessions.
        self._shares: WeakValueDictionary[str, MemoryBudget] = WeakValueDictionary()

    def share(self, identity: str) -> MemoryBudget:
        """Return the budget of all sessions of an identity together."""
        with self._shares_lock:
            budget = self._shares.get(identity)
            if budget is None:
                setting = "--identity-share or --held-bytes"
                budget = self._shares[identity] = MemoryBudget(self._share_bytes, self, f"{identity}'s", setting)
            return budget

    def by_identity(self) -> dict[str, int]:
        """Return the bytes that the sessions of each identity have reserved."""
        with self._shares_lock:
            budgets = dict(self._shares)
        return {identity: budget.used_bytes for identity, budget in budgets.items()}

    @property
    def full_ratio(self) -> float:
        """Fraction of the budget in use: of the whole budget, or of one identity's share if that is more."""
        shares = [used_bytes / self._share_bytes for used_bytes in self.by_identity().values()]
        return max(self.used_bytes / self.limit_bytes, *shares, 0.0)
