"""Running compilations: their turns, progress and cancellation."""

import os
import sys
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

GIVEN_UP = OperationFailed("the client gave up")


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress reports of a compilation to its client, as a stage and the fraction of that stage that is done.

    Each report is also a point at which a cancelled compilation ends.
    """

    report: Callable[[str, float], None] = lambda stage, fraction: None
    cancellation: Cancellation = field(default_factory=lambda: Cancellation(reason=GIVEN_UP))

    def __call__(self, stage: str, fraction: float) -> None:
        """Report progress. Raises OperationFailed if the client has given up, and TimedOut after its deadline."""
        self.cancellation.check()
        self.report(stage, fraction)


class Compilers:
    """Scheduler of compilations, with fair turns for users and a quota of compile time per identity."""

    def __init__(self, settings: Settings) -> None:
        compilers = settings.concurrent_compilations or max((os.cpu_count() or 1) // 2, 2)
        # The limit on calls also limits the queue.
        self.scheduler = Scheduler(compilers, sys.maxsize, settings.priority_ageing_s)
        self._quota = CompileQuota(settings.identity_compile_s)

    @contextmanager
    def turn(
        self, session: Session, priority: Priority, progress: Progress, cancellation: Cancellation | None = None
    ) -> Iterator[None]:
        """Wait for the session's turn, then let the block compile, check or restore a model.

        `cancellation` cancels the block; by default the client's, which also the end of the session cancels. Raises
        OutOfMemory if the identity's quota of compile time is spent, and OperationFailed or TimedOut if the
        client gives up or its deadline passes.
        """
        identity, busy_ns = str(session.identity), 0
        cancellation = cancellation or progress.cancellation
        session.cancellations.add(progress.cancellation)
        try:
            if not session.is_open:
                progress.cancellation.cancel()
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
            session.cancellations.discard(progress.cancellation)
