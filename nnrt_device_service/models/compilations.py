"""Running compilations: their turns, progress and cancellation, and sharing of the results between sessions."""

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

# Seconds that a session waits for another's compilation of the same model before it compiles the model itself.
COMPILATION_WAIT_S = 120.0
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress reports of a compilation to its client, as a stage and the fraction of that stage that is done.

    Each report is also a point at which a cancelled compilation ends.
    """

    report: Callable[[str, float], None] = lambda stage, fraction: None
    cancellation: Cancellation = field(default_factory=lambda: Cancellation(reason=_GIVEN_UP))

    def __call__(self, stage: str, fraction: float) -> None:
        """Report progress. Raises OperationFailed if the client has given up, and TimedOut after its deadline."""
        self.cancellation.check()
        self.report(stage, fraction)


@dataclass(eq=False, slots=True)
class _Compilation:
    """Compilation that runs, or whose model isn't in the store yet."""

    is_over: threading.Event = field(default_factory=threading.Event)
    # The model is compiled, and its file is being written.
    is_being_written: bool = False


class Compilations:
    """Running compilations of a device, by the store's key of the model."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[str, _Compilation] = {}
        # Number of ended compilations. While it doesn't change, no new model is in the store.
        self.ended = 0

    @contextmanager
    def begin(self, key: str, waiting: Callable[[], None]) -> Iterator[None]:
        """Register the compilation of a model; the block compiles the model and writes it to the store.

        If another session compiles the same model, first waits until that has ended, for at most COMPILATION_WAIT_S,
        and calls `waiting` repeatedly meanwhile. Any thread may leave the block.
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
        """Note that the model of the `begin` block is compiled and is being written."""
        with self._lock:
            if compilation := self._under_way.get(key):
                compilation.is_being_written = True

    def await_writing(self, key: str, waiting: Callable[[], None]) -> None:
        """Wait until a compiled model is in the store, for at most COMPILATION_WAIT_S.

        Calls `waiting` repeatedly meanwhile. Returns at once if the model isn't being written.
        """
        deadline = time.monotonic() + COMPILATION_WAIT_S
        while time.monotonic() < deadline:
            with self._lock:
                other = self._under_way.get(key)
            if other is None or not other.is_being_written:
                return
            waiting()
            other.is_over.wait(_POLL_S)


class Compilers:
    """Scheduler of compilations, with fair turns for users and a quota of compile time per identity."""

    def __init__(self, settings: Settings) -> None:
        compilers = settings.concurrent_compilations or max((os.cpu_count() or 1) // 2, 2)
        # The limit on calls also limits the queue.
        self.scheduler = Scheduler(compilers, sys.maxsize, settings.priority_ageing_s)
        self._quota = CompileQuota(settings.identity_compile_s)

    @contextmanager
    def turn(self, session: Session, priority: Priority, progress: Progress) -> Iterator[None]:
        """Wait for the session's turn, then let the block compile, check or restore a model.

        Raises OutOfMemory if the identity's quota of compile time is spent, and OperationFailed or TimedOut if the
        client gives up or its deadline passes.
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
                self._quota.require_room(identity)  # Other compilations of the identity may have spent it meanwhile.
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
