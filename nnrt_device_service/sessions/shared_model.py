"""Compiled model of a device, with the sessions that hold it."""

import threading
from collections.abc import Callable, Hashable, Mapping

from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_hdi.backend import ModelConfig, PreparedModel


class SharedModel:
    """Compiled model that any number of sessions hold; the last one to release it closes it."""

    __slots__ = (
        "_holders",
        "_is_counted",
        "_lock",
        "_whole",
        "config",
        "is_signable",
        "keys",
        "notes",
        "on_closed",
        "prepared",
        "size_bytes",
    )

    def __init__(
        self,
        prepared: PreparedModel,
        config: ModelConfig,
        size_bytes: int,
        notes: Mapping[str, int],
        is_signable: bool,
        whole: MemoryBudget,
    ) -> None:
        """Make a model that one session holds. `whole` is the budget of all sessions."""
        self.prepared = prepared
        # With which it was compiled, or restored.
        self.config = config
        # As in LoadedModel.
        self.size_bytes = size_bytes
        self.is_signable = is_signable
        # Number of nodes for each note, as in CheckedModel.
        self.notes = notes
        # What new sessions find it by.
        self.keys: list[Hashable] = []
        # Called when nobody holds the model any more and it is closed.
        self.on_closed: Callable[[SharedModel], object] = lambda model: None
        self._whole = whole
        # Whether the model itself has reserved its bytes there.
        self._is_counted = False
        self._lock = threading.Lock()
        self._holders = 1

    @property
    def held_bytes(self) -> int:
        """Bytes that count for each session that holds the model: what it was made of, and what it keeps of runs."""
        return self.size_bytes + self.prepared.kept_bytes

    def hold(self, times: int = 1) -> bool:
        """Hold the model for so many sessions more. Return False if nobody holds it any more."""
        with self._lock:
            if self._holders:
                self._holders += times
            return bool(self._holders)

    def release(self, *, made_it: bool = False) -> None:
        """Stop holding the model, and close it if nobody else holds it.

        The bytes of the session that `made_it` count in the budget of all sessions, too. If that session leaves before
        others, the model counts there itself, even beyond the limit, for the memory stays in use.
        """
        with self._lock:
            self._holders -= 1
            if self._holders:
                if made_it:
                    self._is_counted = True
                    self._whole.reserve_anyway(self.held_bytes)
                return
        try:
            self.prepared.close()
        finally:
            if self._is_counted:
                self._whole.release(self.held_bytes)
            self.on_closed(self)
