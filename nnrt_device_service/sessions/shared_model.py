"""Compiled model of a device, with the sessions that use it."""

import threading
from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack

from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_hdi.backend import ModelConfig, PreparedModel


class _Use:
    """Use of a model by one session, which counts its bytes once however many models of the session it is."""

    __slots__ = ("count", "undo")

    def __init__(self, undo: ExitStack) -> None:
        self.count = 1
        # Releases the bytes that the session counts.
        self.undo = undo


class SharedModel:
    """Compiled model that any number of sessions hold; the last one to release it closes it."""

    __slots__ = (
        "_holders",
        "_is_counted",
        "_lock",
        "_maker",
        "_uses",
        "_whole",
        "config",
        "is_faulty",
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
        # Whether the device failed to run it. Then no further session gets it.
        self.is_faulty = False
        # What new sessions find it by.
        self.keys: list[Hashable] = []
        # Called when nobody holds the model any more and it is closed.
        self.on_closed: Callable[[SharedModel], object] = lambda model: None
        self._whole = whole
        # Whether the model itself has reserved its bytes there.
        self._is_counted = False
        self._lock = threading.Lock()
        self._holders = 1
        self._uses: dict[object, _Use] = {}
        # The session whose bytes count in the budget of all sessions.
        self._maker: object = None

    @property
    def held_bytes(self) -> int:
        """Bytes that count for each session that holds the model: what it was made of, and what it keeps of runs."""
        return self.size_bytes + self.prepared.kept_bytes

    def hold(self, times: int = 1) -> bool:
        """Hold the model so many times more. Return False if nobody holds it any more."""
        with self._lock:
            if self._holders:
                self._holders += times
            return bool(self._holders)

    def join(self, session: object) -> bool:
        """Assign what the caller holds to a session that counts the model's bytes already; return False for another."""
        with self._lock:
            if (use := self._uses.get(session)) is not None:
                use.count += 1
            return use is not None

    def use(self, session: object, undo: ExitStack, *, made_it: bool = False) -> None:
        """Assign what the caller holds to a session, which counts the model's bytes until `undo` is closed.

        The bytes of the session that `made_it` count in the budget of all sessions, too.
        """
        with self._lock:
            if (use := self._uses.get(session)) is None:
                self._uses[session] = _Use(undo.pop_all())
            else:  # Another thread of the session was first.
                use.count += 1
                if made_it:
                    use.undo, undo = undo.pop_all(), use.undo
            if made_it:
                self._maker = session
        undo.close()

    def release(self, session: object = None) -> None:
        """Stop holding the model, for a session that uses it or for nobody yet; the last one closes it.

        If the session that made it leaves before others, the model itself counts in the budget of all sessions, even
        beyond the limit, for the memory stays in use.
        """
        undo = ExitStack()
        with self._lock:
            self._holders -= 1
            is_last = not self._holders
            if (use := self._uses.get(session)) is not None:
                use.count -= 1
                if not use.count:
                    undo = self._uses.pop(session).undo
                    if session is self._maker and not is_last:
                        self._maker = None
                        self._is_counted = True
                        self._whole.reserve_anyway(self.held_bytes)
        try:
            if is_last:
                self.prepared.close()
        finally:
            undo.close()
            if is_last:
                if self._is_counted:
                    self._whole.release(self.held_bytes)
                self.on_closed(self)
