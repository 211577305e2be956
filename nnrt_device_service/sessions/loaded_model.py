"""Loaded model: a model of a session, from its compilation to the end of its last run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from typing_extensions import Self

from nnrt_device_service.memory.freeing import Freeing
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.scheduling.joinable import Member
from nnrt_device_service.sessions.shared_model import USES, AbsentModel, SharedModel
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import UnknownHandle
from nnrt_hdi.tensor import TensorForm

_GONE = "the model has been released"
# In place of a closed model, so that descriptions and replies that outlive it keep no backend object alive.
_RELEASED = SharedModel.alone(AbsentModel(), MemoryBudget(0))


class LoadedModel:
    """Compiled model that a session uses, released after the session has closed it and its last run has ended."""

    __slots__ = (
        "_close",
        "_freeing",
        "_latest_ns",
        "_lock",
        "_users",
        "group",
        "inputs",
        "outputs",
        "rank",
        "shared",
        "unpin",
        "usual_ns",
    )

    def __init__(
        self, shared: SharedModel, freeing: Freeing, close: Callable[[], object], priority: Priority = Priority.NONE
    ) -> None:
        """Make a loaded model. In the end `freeing` calls `close`."""
        # The compiled model, which other sessions may use, too.
        self.shared = shared
        self.inputs = tuple(map(TensorForm, shared.prepared.inputs))
        self.outputs = tuple(map(TensorForm, shared.prepared.outputs))
        self.rank = priority.rank
        # Membership in a group whose runs may be computed together; None if its runs run alone.
        self.group: Member | None = None
        # Nanoseconds that its runs usually take on the device; None before the first has ended.
        self.usual_ns: int | None = None
        # Nanoseconds that the latest run took on the device.
        self._latest_ns = 0
        # Called when the model is released.
        self.unpin: Callable[[], object] = lambda: None
        self._close = close
        self._freeing = freeing
        self._lock = shared.lock
        self._users = 1
        freeing.expect()

    def acquire(self, cancellation: Cancellation) -> None:
        """Keep the model open and on the device until `release`.

        Waits until it is back from the store if it has left. Raises UnknownHandle if it is closed or about to be, or if
        it can't come back; OutOfMemory if the device has no room for it; and what `cancellation.check` raises.
        """
        while True:
            with self._lock:
                if not self._users:
                    raise UnknownHandle(_GONE)
                shared = self.shared
                if not shared.is_away:
                    self._users += 1
                    shared.runs += 1
                    shared.last_use = next(USES)
                    return
            shared.bring_back(shared, cancellation)

    def release(self, computed_ns: int = 0) -> None:
        """End one use of the model, such as that of a run, which was on the device for `computed_ns`."""
        with self._lock:
            if computed_ns:
                # The longest time counts, and decays by a sixteenth with every shorter run: by half in about ten. A
                # single long run doesn't count: other processes may have had the processor meanwhile.
                twice_ns = min(computed_ns, self._latest_ns or computed_ns)
                usual_ns = self.usual_ns or 0
                self.usual_ns = max(twice_ns, usual_ns - (usual_ns >> 4))
                self._latest_ns = computed_ns
            shared = self.shared
            shared.runs -= 1
            is_idle = shared.is_away and not shared.runs
            self._users -= 1
            is_last = not self._users
        if is_idle:
            shared.on_idle()
        if is_last:
            self._free()

    def close(self) -> None:
        """End the session's own use: the model is released when its last run has ended."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
        self._free()

    def _free(self) -> None:
        self.unpin()
        self._freeing.free("close a model", self._close, self._forget)

    def _forget(self) -> None:
        self.shared = _RELEASED
        self._close = _RELEASED.release

    def pin(self, pin: Callable[[SharedModel], Callable[[], object]]) -> None:
        """Call `pin`, and what it returned when the model is released. Raises what `pin` raises."""
        unpin = pin(self.shared)
        with self._lock:
            if self._users:
                self.unpin, unpin = unpin, self.unpin
        unpin()

    @contextmanager
    def used(self, cancellation: Cancellation) -> Iterator[Self]:
        """Use the model in the block, as `acquire`."""
        self.acquire(cancellation)
        try:
            yield self
        finally:
            self.release()

    @contextmanager
    def kept(self) -> Iterator[Self]:
        """Use the model once more in the block, for a run that has acquired it. Never waits. Raises UnknownHandle."""
        with self._lock:
            if not self._users:
                raise UnknownHandle(_GONE)
            self._users += 1
            self.shared.runs += 1
        try:
            yield self
        finally:
            self.release()
