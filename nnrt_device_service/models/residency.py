"""Residency of models on the device: those not used for longest leave for others, and come back from the store."""

import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from nnrt_device_service.memory.freeing import Freeing
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.sessions.shared_model import SharedModel
from nnrt_device_service.settings import LimitReached, Settings
from nnrt_hdi import counters
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel
from nnrt_hdi.errors import OutOfMemory, UnknownHandle
from nnrt_hdi.files.store_directory import SHOWN_KEY, Recipe

_log = logging.getLogger(__name__)

_SETTING = "--resident-bytes"
# Seconds that a model in use gets to end its runs before another one leaves instead.
_DRAIN_S = 10.0


class Residency:
    """Models on the device, within --resident-bytes.

    A model that the store has may leave while no run uses it. Its next run restores it, and waits within its deadline.
    Models leave in the order of their latest use. If all are in use, the first in this order takes no further runs
    until it has left.
    """

    def __init__(
        self,
        settings: Settings,
        freeing: Freeing,
        has: Callable[[Recipe], bool],
        find: Callable[[Recipe, ModelConfig], Callable[[], PreparedModel]],
    ) -> None:
        """Make an empty set.

        `has` says whether the store has a model. `find` returns what restores it from there, or raises UnknownHandle.
        """
        limit_bytes = settings.resident_bytes or sys.maxsize
        # Who has reserved room for a model that isn't made releases it there.
        self.budget = MemoryBudget(limit_bytes, whose="the daemon's", setting=_SETTING)
        self.budget.on_shortage(self.evict_idle)
        self._limit_bytes = settings.resident_bytes
        self._most_pinned_bytes = settings.share_of(limit_bytes)
        self._freeing = freeing
        self._has = has
        self._find = find
        # Guards what follows. Notified when a model has come, left, or become idle, and when a run is cancelled.
        self._changed = threading.Condition()
        # Models on the device, with the bytes that they count.
        self._resident: dict[SharedModel, int] = {}
        # Models that are on their way, to or from the device.
        self._moving: set[SharedModel] = set()
        # Number of models that have room and are being made, or written to the store: they may be able to leave soon.
        self._unsettled = 0
        # Number of moves, and of such work, that has ended.
        self._ended = 0
        # Threads that restore a model now, and the most that may.
        self._restoring, self._most_restoring = 0, max((os.cpu_count() or 1) // 2, 1)
        self._pinned_bytes: Counter[str] = Counter()
        # Numbers of models that have left and come back, and of runs that had to wait for that.
        self.evicted = self.restored = self.waits = 0

    def snapshot(self) -> counters.Residency:
        """Return the figures that metrics and clients get."""
        return counters.Residency(
            len(self._resident),
            self.budget.used_bytes,
            self._limit_bytes,
            self.evicted,
            self.restored,
            self.waits,
        )

    def reserve(self, size_bytes: int, cancellation: Cancellation) -> None:
        """Make room for a model.

        Raises OutOfMemory if too many models can't leave, and what `cancellation.check` raises.
        """
        while True:
            try:
                return self.budget.reserve(size_bytes)
            except LimitReached:
                if size_bytes > self.budget.limit_bytes:
                    raise
                has_left = any(self._evict(model, cancellation) for model in self._candidates())
                if not has_left and not self._await_other(cancellation):
                    return self.budget.reserve(size_bytes)  # Another model may have left meanwhile.

    def make(self, make: Callable[[], PreparedModel], size_bytes: int) -> PreparedModel:
        """Return the model that `make` has the backend make, for which the caller has reserved `size_bytes`.

        If the backend raises OutOfMemory, idle models of so many bytes leave, and it is called once more. Raises
        OutOfMemory too if the model takes more of the device than --resident-bytes.
        """
        prepared: PreparedModel | None = None
        try:
            prepared = make()
        except OutOfMemory as error:  # A LimitReached is of the daemon, whatever room the device has.
            if isinstance(error, LimitReached) or not self.evict_idle(size_bytes):
                raise
        if prepared is None:  # Not above, where the error keeps alive what the backend had made until then.
            prepared = make()
        device_bytes = prepared.device_bytes or 0
        if device_bytes > self.budget.limit_bytes:
            prepared.close()
            raise LimitReached(
                f"the model takes {device_bytes} bytes of the device, and the daemon's limit is"
                f" {self.budget.limit_bytes}; make it smaller, or raise {_SETTING}",
                _SETTING,
            )
        return prepared

    @contextmanager
    def unsettled(self) -> Iterator[None]:
        """Make a model that has room, or write it to the store, in the block.

        A thread that finds no room waits for the end of the block.
        """
        with self._changed:
            self._unsettled += 1
        try:
            yield
        finally:
            with self._changed:
                self._unsettled -= 1
                self._ended += 1
                self._changed.notify_all()

    def add(self, model: SharedModel, reserved_bytes: int) -> None:
        """Take a model for which the caller has reserved room. If it takes more, idle ones leave for it."""
        self.budget.release(reserved_bytes)
        self.budget.reserve_anyway(model.resident_bytes)
        model.bring_back = self._bring_back
        with self._changed:
            self._resident[model] = model.resident_bytes
        while self.budget.used_bytes > self.budget.limit_bytes and self.evict_idle():
            pass

    def forget(self, model: SharedModel) -> None:
        """Release the room of a model that was closed, or has left."""
        with self._changed:
            size_bytes = self._resident.pop(model, None)
            self._changed.notify_all()
        if size_bytes is not None:
            self.budget.release(size_bytes)

    def pin(self, model: SharedModel, identity: str) -> Callable[[], None]:
        """Let a model stay on the device, at the expense of an identity, until the returned function is called.

        Raises OutOfMemory if the identity pins more than its share.
        """
        size_bytes = model.resident_bytes
        with self._changed:
            if self._pinned_bytes[identity] + size_bytes > self._most_pinned_bytes:
                raise LimitReached(
                    f"{size_bytes} more bytes of pinned models pass {identity}'s share of {self._most_pinned_bytes}"
                    f" ({self._pinned_bytes[identity]} are pinned); load it without pin, or raise the daemon's"
                    f" {_SETTING}",
                    _SETTING,
                )
            self._pinned_bytes[identity] += size_bytes
        with model.lock:
            model.pins += 1

        def unpin() -> None:
            with model.lock:
                model.pins -= 1
            with self._changed:
                self._pinned_bytes[identity] -= size_bytes

        return unpin

    def evict_idle(self, size_bytes: int = 0) -> bool:
        """Let the model leave that was not used for longest, of those that no run uses; return False if none can.

        More of them leave until they are of `size_bytes` together.
        """
        left, left_bytes = 0, 0
        for model in self._candidates():
            if not model.runs and self._evict(model):
                left, left_bytes = left + 1, left_bytes + model.resident_bytes
                if left_bytes >= size_bytes:
                    break
        return left > 0

    def _candidates(self) -> list[SharedModel]:
        with self._changed:
            models = [model for model in self._resident if model.may_leave and model not in self._moving]
        return sorted(models, key=lambda model: model.last_use)

    def _evict(self, model: SharedModel, cancellation: Cancellation | None = None) -> bool:
        """Let a model leave; return False, and let it stay, if runs use it.

        With a `cancellation` wait for the end of these runs, and raise as `cancellation.check`.
        """
        if model.recipe is None or not self._has(model.recipe) or not self._begin_move(model):
            return False
        is_leaving = has_left = False
        try:
            is_leaving = model.start_leaving(self._notify)
            if is_leaving and cancellation is not None:
                self._wait_until(lambda: not model.runs, cancellation, _DRAIN_S)
            if not is_leaving or (prepared := model.leave()) is None:
                return False
            has_left = True
            _close(prepared, self._freeing)
            del prepared
            model.uncount()
            self.forget(model)
        finally:
            if is_leaving and not has_left:
                model.stay()
            self._end_move(model)
        self.evicted += 1
        _log.info("model %s left the device, %d bytes", model.recipe.key[:SHOWN_KEY], model.resident_bytes)
        return True

    def _await_other(self, cancellation: Cancellation) -> bool:
        """Wait until other threads have moved, made or stored a model; return False if none does.

        Models that wait for room themselves don't count: two of them would wait for each other.
        """
        with self._changed:
            ended = self._ended
            if not self._unsettled and self._moving.isdisjoint(self._resident):
                return False
        return self._wait_until(lambda: self._ended != ended, cancellation)

    def _bring_back(self, model: SharedModel, cancellation: Cancellation) -> None:
        """Restore a model that is away, or wait until another thread has. Raises as `LoadedModel.acquire`."""
        self.waits += 1
        if not self._await_move(model, cancellation):
            return
        try:
            self._restore(model, cancellation)
        except UnknownHandle:
            model.is_faulty = True  # Who asks for it from now on gets a new one.
            raise
        finally:
            self._end_move(model)

    def _restore(self, model: SharedModel, cancellation: Cancellation) -> None:
        recipe, size_bytes, began = model.recipe, model.resident_bytes, time.monotonic()
        assert recipe is not None
        restore = self._find(recipe, model.config)  # First, so that no other model leaves in vain.
        with ExitStack() as undo, self._turn(cancellation):
            self.reserve(size_bytes, cancellation)
            undo.callback(self.forget, model)
            with self._changed:
                self._resident[model] = size_bytes
            undo.callback(model.reserve_whole())
            with self._freeing.calling_backend("restore a model"):
                prepared = self.make(restore, size_bytes)
            if not model.come_back(prepared):
                prepared.close()
                return
            undo.pop_all()
        self.restored += 1
        took_s = time.monotonic() - began
        _log.info("model %s is back on the device, %d bytes in %.2f s", recipe.key[:SHOWN_KEY], size_bytes, took_s)

    @contextmanager
    def _turn(self, cancellation: Cancellation) -> Iterator[None]:
        """Restore in the block, with few other threads at a time, so that runs get the host's processors, too."""

        def take() -> bool:
            is_free = self._restoring < self._most_restoring
            self._restoring += is_free
            return is_free

        self._wait_until(take, cancellation)
        try:
            yield
        finally:
            with self._changed:
                self._restoring -= 1
                self._changed.notify_all()

    # ---- moves

    def _begin_move(self, model: SharedModel) -> bool:
        with self._changed:
            if model in self._moving:
                return False
            self._moving.add(model)
            return True

    def _await_move(self, model: SharedModel, cancellation: Cancellation) -> bool:
        """Wait until the caller may move a model that is away; return False if it is back, or closed."""
        self._wait_until(lambda: self._begin_move(model), cancellation)
        if model.is_away and model.is_held:
            return True
        self._end_move(model)
        return False

    def _end_move(self, model: SharedModel) -> None:
        with self._changed:
            self._moving.discard(model)
            self._ended += 1
            self._changed.notify_all()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _wait_until(
        self, is_so: Callable[[], bool], cancellation: Cancellation, most_s: float = threading.TIMEOUT_MAX
    ) -> bool:
        """Wait until a condition holds, at most `most_s`; return whether it does. Raises as `cancellation.check`.

        `is_so` is called under the lock, and may take what it finds free.
        """
        until = time.monotonic() + most_s
        stop_listening = cancellation.on_cancel(self._notify)
        try:
            with self._changed:
                while not is_so():
                    cancellation.check()
                    left_s = until - time.monotonic()
                    if left_s <= 0:
                        return False
                    remaining_s = cancellation.remaining
                    self._changed.wait(left_s if remaining_s is None else min(left_s, max(remaining_s, 0.0)))
                return True
        finally:
            stop_listening()


def _close(prepared: PreparedModel, freeing: Freeing) -> None:
    try:
        with freeing.calling_backend("close a model"):
            prepared.close()
    except BaseException:
        _log.exception("the backend failed to close a model that left")
