"""Compilations under way: how their clients learn of them and give them up, and which of them others want as well."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import OperationFailed

_GIVEN_UP = OperationFailed("the client gave up")

# How long a session lets another compile the same model before it does so itself.
COMPILATION_WAIT_S = 120.0
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    """Tells a client how far its compilation is: the stage, and the fraction of it. A call of it is also where a
    compilation ends that nobody wants any more."""

    report: Callable[[str, float], None] = lambda stage, fraction: None
    cancellation: Cancellation = field(default_factory=lambda: Cancellation(reason=_GIVEN_UP))

    def __call__(self, stage: str, fraction: float) -> None:
        """Raises OperationFailed where the client has given up, and TimedOut where it takes too long."""
        self.cancellation.check()
        self.report(stage, fraction)


@dataclass(eq=False, slots=True)
class _Compilation:
    """A compilation under way, until its model is in the store."""

    is_over: threading.Event = field(default_factory=threading.Event)
    # The model is ready, and only its file isn't yet.
    is_being_written: bool = False


class Compilations:
    """The compilations of a device, each by the key of its model in the store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[str, _Compilation] = {}

    @contextmanager
    def begin(self, key: str, waiting: Callable[[], None]) -> Iterator[None]:
        """Compile a model in this block and write it, so that others who want the same one find it in the store.

        They call `waiting` until then, for at most COMPILATION_WAIT_S. Any thread may leave the block.
        """
        deadline = time.monotonic() + COMPILATION_WAIT_S
        mine = _Compilation()
        while True:
            with self._lock:
                other = self._under_way.get(key)
                if other is None or time.monotonic() >= deadline:
                    self._under_way[key] = mine
                    break
            waiting()
            other.is_over.wait(_POLL_S)
        try:
            yield
        finally:
            with self._lock:
                if self._under_way.get(key) is mine:
                    del self._under_way[key]
            mine.is_over.set()

    def begin_writing(self, key: str) -> None:
        """Say that the model compiled in the block of `begin` is ready, and is going to be written."""
        with self._lock:
            if compilation := self._under_way.get(key):
                compilation.is_being_written = True

    def await_writing(self, key: str, waiting: Callable[[], None]) -> None:
        """Wait until a model that is ready is in the store, and call `waiting` meanwhile; for at most
        COMPILATION_WAIT_S."""
        deadline = time.monotonic() + COMPILATION_WAIT_S
        while time.monotonic() < deadline:
            with self._lock:
                other = self._under_way.get(key)
            if other is None or not other.is_being_written:
                return
            waiting()
            other.is_over.wait(_POLL_S)
