"""Compilations under way: whose turn it is, who learns of them and gives them up, and which others want as well."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from nnrt_device_service.scheduling.compile_quota import CompileQuota
from nnrt_device_service.scheduling.scheduler import Scheduler
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.enums import Priority
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
        # How many have ended. As long as it stays, nothing new is in the store.
        self.ended = 0

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
                self.ended += 1
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


class Compilers:
    """Lets a number of models be compiled at a time, each in its user's turn and within its identity's quota."""

    def __init__(self, settings: Settings) -> None:
        compilers = settings.concurrent_compilations or max((os.cpu_count() or 1) // 2, 2)
        # There are no more compilations than calls.
        self.scheduler = Scheduler(compilers, sys.maxsize, settings.priority_ageing_s)
        self._quota = CompileQuota(settings.identity_compile_s)

    @contextmanager
    def turn(self, session: Session, priority: Priority, progress: Progress) -> Iterator[None]:
        """Let the backend work on a model in this block, in the user's turn, unless its client gives up before.

        Raises OutOfMemory where the identity has spent all that it has of such time.
        """
        identity, cancellation, busy_ns = str(session.identity), progress.cancellation, 0
        session.cancellations.add(cancellation)
        try:
            if not session.is_open:
                cancellation.cancel()
            self._quota.require_room(identity)
            if not self.scheduler.has_free_slot:
                progress("waiting", 0.0)
            self.scheduler.acquire(session.compilations.flows[priority.rank], cancellation)
            try:
                self._quota.require_room(identity)  # Others of its compilations have ended meanwhile.
                cancellation.began_ns = began_ns = time.perf_counter_ns()
                try:
                    yield
                finally:
                    cancellation.began_ns = None
                    busy_ns = time.perf_counter_ns() - began_ns
                    self._quota.spend(identity, busy_ns / 1e9)
            finally:
                self.scheduler.release(cancellation, busy_ns)
        finally:
            session.cancellations.discard(cancellation)
