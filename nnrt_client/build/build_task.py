"""Build under way: it calls a daemon within one deadline, reports its progress, and can be ended from any thread."""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from nnrt_client.build.way import Way
from nnrt_client.session.fork import LockOwner
from nnrt_client.session.session import Session
from nnrt_client.settings import Settings
from nnrt_client.tracing.tracer import Stage
from nnrt_hdi.backend import Origin
from nnrt_hdi.errors import NnrtError, TimedOut

Progress = Callable[[str, float], object]

# Stage in which every build begins; the others are "uploading", "restoring", "compiling" and "storing".
CHECKING = "checking"

# Seconds between two checks for cancellation while a build waits for a lock.
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class BuildReport:
    """Report of a build: how the device got the model, and what that took."""

    origin: Origin
    # Seconds by stage: "checking" (a cache's file, too), "uploading", "restoring", "compiling", "storing".
    stages_s: Mapping[str, float]
    # Bytes of the messages that the client sent to the daemon, weights included.
    sent_bytes: int
    # Seconds that the original build of the cache or offline model took. None if the model comes from neither, or if
    # that time isn't known.
    compiled_in_s: float | None = None
    # Way in which the device got the model, and, for each way that has precedence over it, why it was not taken.
    way: Way = Way.OPERATORS
    passed_over: Mapping[Way, str] = field(default_factory=dict)
    # Notes of the device on nodes that it runs differently than asked ("computed in 32 bits"), each with the number of
    # nodes.
    notes: Mapping[str, int] = field(default_factory=dict)

    @property
    def total_s(self) -> float:
        """Seconds that the build took in all."""
        return sum(self.stages_s.values())

    @property
    def saved_s(self) -> float | None:
        """Seconds by which restoring was faster than compiling; None if `compiled_in_s` is None."""
        return None if self.compiled_in_s is None else self.compiled_in_s - self.total_s

    def __str__(self) -> str:
        stages = ", ".join(f"{stage} {seconds * 1000:.0f} ms" for stage, seconds in self.stages_s.items())
        instead = "" if self.compiled_in_s is None else f" instead of {self.compiled_in_s * 1000:.0f} ms"
        way = "" if self.way is Way.OPERATORS else f"as {self.way} "
        took = f"{self.total_s * 1000:.0f} ms{instead} ({stages})"
        notes = "".join(f"; {describe_note(note, count)}" for note, count in self.notes.items())
        return f"{way}{self.origin.value} in {took}, {self.sent_bytes:,} bytes sent{notes}"


def describe_note(note: str, count: int) -> str:
    """Return a device's note, and the number of operators that it is about, as text."""
    return f"{count} operator{'s' if count > 1 else ''}: {note}"


class BuildTask(LockOwner):
    """Build under way.

    It makes RPCs as a Session does, but ends them all when the build ends: at its deadline, by `end`, or when the
    progress callback raises.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self._watcher = progress
        super().__init__()
        self._calls: set[Any] = set()
        self._reason: BaseException | None = None
        self._deadline = float("inf")
        self._stage = CHECKING
        self._stage_began = time.monotonic()
        self._stages_s: dict[str, float] = {}
        # Stages that are over.
        self._stages: list[Stage] = []
        self._stage_began_ns = time.perf_counter_ns()
        self.sent_bytes = 0
        # Whether the model is to stay on the device.
        self.is_pinned = False

    def _make_locks(self) -> None:
        self._lock = threading.Lock()

    def connect(self, session: Session) -> None:
        """Use the daemon of a session from now on, and set the build's deadline, `build_timeout_s` from now."""
        self.session = session
        self._deadline = time.monotonic() + session.settings.build_timeout_s

    @property
    def settings(self) -> Settings:
        """Settings of the session."""
        return self.session.settings

    # ---- the end

    def end(self, reason: BaseException) -> None:
        """End the build with `reason`, unless it has been ended before; any thread may call this."""
        with self._lock:
            self._reason = self._reason or reason
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    @property
    def is_ended(self) -> bool:
        """True if the build has been ended."""
        return self._reason is not None

    def check(self) -> None:
        """Raise the reason for which the build was ended, if it was ended."""
        reason = self._reason
        if reason is not None:
            # A copy of our errors, because a raised error keeps the frames that it goes through, which refer to the
            # task.
            raise reason.copy() if isinstance(reason, NnrtError) else reason

    def remaining_s(self) -> float:
        """Return the seconds until the deadline. Raise TimedOut after it, and what `check` raises."""
        self.check()
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimedOut(
                f"the build took longer than {self.settings.build_timeout_s:g} s (build_timeout_s)",
                place=self.session.place,
            )
        return remaining

    @contextmanager
    def locking(self, lock: threading.Lock) -> Iterator[None]:
        """Hold a lock that other builds may hold for long. Raise what `remaining_s` raises if the build ends first."""
        while not lock.acquire(timeout=min(self.remaining_s(), _POLL_S)):
            pass
        try:
            yield
        finally:
            lock.release()

    # ---- progress

    def progress(self, stage: str, fraction: float) -> None:
        """Report how far a stage is; an error of the callback ends the build."""
        self.check()
        if stage == CHECKING != self._stage:
            return  # The daemon checks again after an upload.
        self._enter(stage)
        if self._watcher:
            try:
                self._watcher(stage, fraction)
            except BaseException as error:
                with self._lock:
                    self._reason = self._reason or error
                raise

    @property
    def stages(self) -> list[Stage]:
        """Stages of the build up to now, in their order."""
        return [*self._stages, Stage(self._stage, self._stage_began_ns, time.perf_counter_ns())]

    def begin_again(self) -> None:
        """Return to the first stage after a failed attempt."""
        self._enter(CHECKING)

    def add_checking_time(self, seconds: float) -> None:
        """Add seconds that checks took before the build to its stage "checking"."""
        self._stages_s[CHECKING] = self._stages_s.get(CHECKING, 0.0) + seconds

    def report(self, origin: Origin, compiled_in_s: float | None = None) -> BuildReport:
        """Return a report of the build up to now."""
        self._enter(self._stage)
        return BuildReport(origin, dict(self._stages_s), self.sent_bytes, compiled_in_s)

    def _enter(self, stage: str) -> None:
        now = time.monotonic()
        self._stages_s[self._stage] = self._stages_s.get(self._stage, 0.0) + now - self._stage_began
        if stage != self._stage:
            self._stages, self._stage_began_ns = self.stages, time.perf_counter_ns()
        self._stage, self._stage_began = stage, now

    # ---- calls

    def call(self, name: str, request: Any, timeout_s: float) -> Any:
        """Make one RPC and return its reply; `request` is a message or an iterator of messages."""
        timeout_s = min(timeout_s, self.remaining_s())
        counted = map(self._count_bytes, request) if isinstance(request, Iterator) else self._count_bytes(request)
        return self.session.call(name, counted, timeout_s, self._cancel_with_build)

    def stream(self, name: str, request: Any) -> Generator[Any, None, None]:
        """Make one RPC and yield its replies; closing the generator ends the RPC."""
        return self.session.stream(name, self._count_bytes(request), self.remaining_s(), self._cancel_with_build)

    def _count_bytes(self, message: Any) -> Any:
        self.sent_bytes += message.ByteSize()
        return message

    @contextmanager
    def _cancel_with_build(self, call: Any) -> Iterator[None]:
        """Cancel an RPC if the build ends during it, and raise the build's reason instead of gRPC's error."""
        with self._lock:
            self._calls.add(call)
            is_ended = self.is_ended
        if is_ended:
            call.cancel()
        try:
            yield
        except (grpc.RpcError, grpc.FutureCancelledError):
            self.check()
            raise
        except BaseException:  # The caller reads no further.
            call.cancel()
            raise
        finally:
            with self._lock:
                self._calls.discard(call)
