"""Loaded model: a model of a session, from its compilation to the end of its last run."""

import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from typing_extensions import Self

from nnrt_device_service.memory.freeing import Freeing
from nnrt_device_service.scheduling.joinable import Member
from nnrt_device_service.sessions.shared_model import SharedModel
from nnrt_hdi.backend import Cancellation, PreparedModel
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import UnknownHandle
from nnrt_hdi.tensor import Array, TensorForm


class _Released(PreparedModel):
    """Placeholder for a closed model, so that descriptions and replies that outlive it keep no backend object alive."""

    inputs = outputs = ()

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        raise UnknownHandle(_GONE)


_GONE = "the model has been released"
_RELEASED = _Released()


class LoadedModel:
    """Prepared model of a session, closed after it has been released and its last run has ended.

    As a context manager it keeps the model open during the block; blocks may overlap.
    """

    __slots__ = (
        "_close",
        "_freeing",
        "_latest_ns",
        "_lock",
        "_on_closed",
        "_users",
        "group",
        "inputs",
        "is_signable",
        "outputs",
        "prepared",
        "rank",
        "shared",
        "size_bytes",
        "usual_ns",
    )

    def __init__(
        self,
        prepared: PreparedModel,
        freeing: Freeing,
        on_closed: Callable[[], object],
        priority: Priority = Priority.NONE,
        size_bytes: int = 0,
        is_signable: bool = False,
        close: Callable[[], object] | None = None,
    ) -> None:
        """Make a loaded model. In the end `freeing` calls `close`, by default of `prepared`, and then `on_closed`."""
        self.prepared = prepared
        # Bytes that the model was made of.
        self.size_bytes = size_bytes
        # Whether the daemon may sign what the model exports: only if it was compiled from NNRt's operators, or restored
        # from a signed export. Else a client that may send code could get it signed for clients that may not.
        self.is_signable = is_signable
        self.inputs = tuple(map(TensorForm, prepared.inputs))
        self.outputs = tuple(map(TensorForm, prepared.outputs))
        self.rank = priority.rank
        # Membership in a group whose runs may be computed together; None if its runs run alone.
        self.group: Member | None = None
        # What it is of all sessions; None for a model of the daemon itself.
        self.shared: SharedModel | None = None
        # Nanoseconds that its runs usually take on the device; None before the first has ended.
        self.usual_ns: int | None = None
        # Nanoseconds that the latest run took on the device.
        self._latest_ns = 0
        self._close = close or prepared.close
        self._freeing = freeing
        self._on_closed = on_closed
        self._lock = threading.Lock()
        self._users = 1
        freeing.expect()

    def acquire(self) -> None:
        """Keep the model open until `release`; raise UnknownHandle if it is closed or about to be."""
        with self._lock:
            if not self._users:
                raise UnknownHandle(_GONE)
            self._users += 1

    def release(self, computed_ns: int = 0) -> None:
        """End one use of the model: the session's, or that of a run, which was on the device for `computed_ns`."""
        with self._lock:
            if computed_ns:
                # The longest time counts, and decays by a sixteenth with every shorter run: by half in about ten. A
                # single long run doesn't count: other processes may have had the processor meanwhile.
                twice_ns = min(computed_ns, self._latest_ns or computed_ns)
                usual_ns = self.usual_ns or 0
                self.usual_ns = max(twice_ns, usual_ns - (usual_ns >> 4))
                self._latest_ns = computed_ns
            self._users -= 1
            if self._users:
                return
        self._freeing.free("close a model", self._close, self._closed)

    def _closed(self) -> None:
        self.prepared = _RELEASED
        self._close, self.shared = _RELEASED.close, None
        self._on_closed()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
