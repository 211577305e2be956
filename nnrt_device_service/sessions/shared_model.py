"""Compiled model of a device, with the sessions that use it."""

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Protocol

from nnrt_device_service.memory.constants import ConstantPool
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel, StartableModel
from nnrt_hdi.errors import UnknownHandle
from nnrt_hdi.files.store_directory import Recipe
from nnrt_hdi.tensor import Array

# Numbers of the uses of all models, in their order.
USES = count(1)


class Holder(Protocol):
    """Session that holds a model."""

    @property
    def budget(self) -> MemoryBudget: ...

    @property
    def constants(self) -> ConstantPool: ...


class AbsentModel(PreparedModel):
    """Stand-in for a model that has left the device or was closed. It keeps nothing of the backend alive."""

    def __init__(self, model: PreparedModel | None = None) -> None:
        if model is not None:
            self.inputs, self.outputs = model.inputs, model.outputs
            self.reads_in_place, self.takes_device_buffers = model.reads_in_place, model.takes_device_buffers
        else:
            self.inputs = self.outputs = ()

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        raise UnknownHandle("the model has been released")


class _Use:
    """Use of a model by one session, which counts its bytes once however many models of the session it is."""

    __slots__ = ("count", "undo")

    def __init__(self, undo: ExitStack) -> None:
        self.count = 1
        # Releases the bytes that the session counts.
        self.undo = undo


class SharedModel:
    """Compiled model that any number of sessions hold; the last one to release it closes it.

    It may leave the device while no run uses it, and come back from the store (see `Residency`).
    """

    __slots__ = (
        "_holders",
        "_is_counted",
        "_maker",
        "_uses",
        "_whole",
        "bring_back",
        "config",
        "held_bytes",
        "is_away",
        "is_faulty",
        "is_signable",
        "is_startable",
        "keys",
        "last_use",
        "lock",
        "notes",
        "on_closed",
        "on_idle",
        "pins",
        "prepared",
        "recipe",
        "resident_bytes",
        "runs",
        "size_bytes",
        "uploads",
    )

    def __init__(
        self,
        prepared: PreparedModel,
        config: ModelConfig,
        size_bytes: int,
        notes: Mapping[str, int],
        is_signable: bool,
        whole: MemoryBudget,
        uploads: Sequence[bytes] = (),
    ) -> None:
        """Make a model that one session holds.

        `whole` is the budget of all sessions, `uploads` are the digests of constants in the session that made it.
        """
        self.prepared = prepared
        self.is_startable = isinstance(prepared, StartableModel)
        # The configuration with which the model was compiled, or restored.
        self.config = config
        # Bytes that the model was made of.
        self.size_bytes = size_bytes
        # Bytes that count for each session that holds the model: what it was made of, and what it keeps of runs.
        self.held_bytes = size_bytes + prepared.kept_bytes
        # Bytes that count while the model is on the device.
        self.resident_bytes = self.held_bytes if prepared.device_bytes is None else prepared.device_bytes
        # Whether the daemon may sign what the model exports: only if it was compiled from NNRt's operators, or restored
        # from a signed export. Else a client that may send code could get it signed for clients that may not.
        self.is_signable = is_signable
        # Number of nodes for each note, as in CheckedModel.
        self.notes = notes
        # Whether the device failed to run it. Then no further session gets it.
        self.is_faulty = False
        # What new sessions find it by.
        self.keys: list[Hashable] = []
        # Called when nobody holds the model any more and it is closed.
        self.on_closed: Callable[[SharedModel], object] = lambda model: None
        # Recipe by which the store has the model. None: the model can't leave the device, for it could not come back.
        self.recipe: Recipe | None = None
        # Number of holders that want it to stay on the device.
        self.pins = 0
        # Whether it has left the device, or will as soon as no run uses it.
        self.is_away = False
        # Called for runs of a model that is away: waits until it is back.
        self.bring_back: Callable[[SharedModel, Cancellation], object] = lambda model, cancellation: None
        # Called when the last run of a model that is to leave has ended.
        self.on_idle: Callable[[], object] = lambda: None
        # Guards the counts of its uses, here and in every `LoadedModel` of it.
        self.lock = threading.Lock()
        # Runs and calls that use it now, and the number of its latest use among those of all models.
        self.runs = self.last_use = 0
        self.uploads = uploads
        self._whole = whole
        # Whether the model itself has reserved its bytes there.
        self._is_counted = False
        self._holders = 1
        self._uses: dict[Holder, _Use] = {}
        # The session whose bytes count in the budget of all sessions.
        self._maker: Holder | None = None

    @classmethod
    def alone(cls, prepared: PreparedModel, whole: MemoryBudget) -> "SharedModel":
        """Return a model that counts nothing and that no session finds: one of the daemon itself."""
        return cls(prepared, ModelConfig(), 0, {}, False, whole)

    # ---- who holds it

    def hold(self, times: int = 1) -> bool:
        """Hold the model so many times more. Return False if nobody holds it any more."""
        with self.lock:
            if self._holders:
                self._holders += times
            return bool(self._holders)

    def join(self, session: Holder) -> bool:
        """Assign what the caller holds to a session that counts the model's bytes already; return False for another."""
        with self.lock:
            if (use := self._uses.get(session)) is not None:
                use.count += 1
            return use is not None

    def use(self, session: Holder, undo: ExitStack, *, made_it: bool = False) -> None:
        """Assign what the caller holds to a session, which counts the model's bytes until `undo` is closed.

        The bytes of the session that `made_it` count in the budget of all sessions, too.
        """
        with self.lock:
            if (use := self._uses.get(session)) is None:
                self._uses[session] = _Use(undo.pop_all())
            else:  # Another thread of the session was first.
                use.count += 1
                if made_it:
                    use.undo, undo = undo.pop_all(), use.undo
            if made_it:
                self._maker = session
        undo.close()

    def release(self, session: Holder | None = None) -> None:
        """Stop holding the model, for a session that uses it or for nobody yet; the last one closes it.

        If the session that made it leaves before others, the model itself counts in the budget of all sessions, even
        beyond the limit, for the memory stays in use.
        """
        undo, was_counted = ExitStack(), False
        with self.lock:
            self._holders -= 1
            is_last = not self._holders
            if is_last:
                was_counted, self._is_counted = self._is_counted, False
            if session is not None and (use := self._uses.get(session)) is not None:
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
            if was_counted:
                self._whole.release(self.held_bytes)
            if is_last:
                self.on_closed(self)

    # ---- whether it is on the device

    @property
    def is_held(self) -> bool:
        """True if anybody holds the model."""
        return self._holders > 0

    @property
    def may_leave(self) -> bool:
        """True if the model is on the device and could come back from the store."""
        return self.recipe is not None and not self.pins and not self.is_away and self.is_held

    def start_leaving(self, on_idle: Callable[[], object]) -> bool:
        """Let new runs wait, and have `on_idle` called when the last run has ended. Return False if it can't leave."""
        with self.lock:
            if not self.may_leave:
                return False
            self.is_away, self.on_idle = True, on_idle
            return True

    def stay(self) -> None:
        """Let new runs use the model again: it doesn't leave after all."""
        with self.lock:
            self.is_away = False

    def leave(self) -> PreparedModel | None:
        """Return what the backend has of the model, which is away now; None if a run uses it or it is pinned."""
        with self.lock:
            if self.runs or self.pins or not self._holders:
                return None
            prepared, self.prepared = self.prepared, AbsentModel(self.prepared)
            return prepared

    def uncount(self) -> None:
        """Count the model, which has left, only for each session that holds it, and no longer in the host's memory."""
        with self.lock:
            maker, self._maker = self._maker, None
            was_counted, self._is_counted = self._is_counted, False
            use = self._uses.get(maker) if maker is not None else None
            if maker is not None and use is not None:
                quota = ExitStack()
                maker.budget.reserve_anyway(self.held_bytes, is_shared=True)
                quota.callback(maker.budget.release, self.held_bytes, is_shared=True)
                former, use.undo = use.undo, quota
            else:
                former = ExitStack()
        former.close()
        if maker is not None:
            maker.constants.drop(self.uploads)
        if was_counted:
            self._whole.release(self.held_bytes)

    def reserve_whole(self) -> Callable[[], object]:
        """Count the model in the host's memory again, before it comes back; return what undoes it if it doesn't."""
        self._whole.reserve(self.held_bytes)
        return partial(self._whole.release, self.held_bytes)

    def come_back(self, prepared: PreparedModel) -> bool:
        """Take what the backend has of the model again; return False if nobody holds it any more."""
        with self.lock:
            if not self._holders:
                return False
            self.prepared = prepared
            self.is_away, self._is_counted = False, True
            self.last_use = next(USES)
            return True
