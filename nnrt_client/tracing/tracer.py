"""Interface of tracers. Without a tracer, runs record nothing."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import NamedTuple

from nnrt_hdi.errors import Failure
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.run_times import RunTimes

Metadata = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True)
class Site:
    """Session, as traces show it."""

    device: str
    address: str
    # First 8 hex digits of the session's id.
    session: str
    # Whether the daemon makes its own spans.
    makes_spans: bool
    # Whether the device can profile operators.
    profiles: bool


class Stage(NamedTuple):
    """Stage of a build; times are of time.perf_counter_ns()."""

    name: str
    began_ns: int
    ended_ns: int


class Outcome(NamedTuple):
    """Outcome of a run that has ended."""

    run_id: int
    model_id: int
    # Times of time.perf_counter_ns().
    began_ns: int
    ended_ns: int
    # Returns the durations of a successful run's stages, complete once the waiting thread has continued.
    times: Callable[[], RunTimes]
    input_bytes: int
    output_bytes: int
    operators: Sequence[OperatorTime]
    failure: Failure | None


class RunTrace(ABC):
    """Trace of a run under way."""

    # Time of time.perf_counter_ns().
    began_ns: int
    # Further fields for the RunDescription of this run.
    fields: Mapping[str, str | bool] = {}
    # Context (contextvars) in which to make the runs that the run consists of; None for any.
    context: Context | None = None

    @abstractmethod
    def end(self, outcome: Outcome) -> None:
        """Record the end, in any thread. Implementations take no lock, because a signal handler may interrupt them."""


class BuildTrace:
    """Trace of a build, whose RPCs are recorded in `context`. This base records nothing."""

    def __init__(self) -> None:
        """Copy the current context. The build makes its RPCs in `context`."""
        self.context = copy_context()

    def end(self, error: BaseException | None, stages: Sequence[Stage] = (), **about: str | int) -> None:
        """Record the end with its stages and facts, in any thread."""


class SessionTracer(ABC):
    """Tracer of one session."""

    @abstractmethod
    def begin_run(self) -> RunTrace | None:
        """Begin the trace of a run, in the calling thread. Return None if the run is not traced."""

    def calling(self, method: str) -> AbstractContextManager[Metadata]:
        """Record the RPC that is made in this block, and return metadata to send with it."""
        return nullcontext(())

    def end(self) -> None:
        """Handle that the session has ended. Traces of its last runs may still end. Idempotent."""

    def join(self, timeout_s: float) -> None:
        """Wait until everything is recorded, for at most `timeout_s` seconds."""


class Tracer(ABC):
    """Tracer of a runtime."""

    @abstractmethod
    def of_session(self, site: Site) -> SessionTracer:
        """Return the tracer of a new session. The main thread never calls this."""

    def begin_build(self) -> BuildTrace:
        """Begin the trace of a build, in the calling thread."""
        return BuildTrace()

    def begin_pooled_run(self) -> RunTrace | None:
        """Begin the trace of a pool's run, in the calling thread. Return None if the run is not traced."""
        return None
