"""Interface of tracers. Without a tracer, runs do nothing of this."""

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
    """Session, as traces name it."""

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
    # Of time.perf_counter_ns().
    began_ns: int
    ended_ns: int
    # Times of a successful run, complete once the waiting thread has gone on.
    times: Callable[[], RunTimes]
    input_bytes: int
    output_bytes: int
    operators: Sequence[OperatorTime]
    failure: Failure | None


class RunTrace(ABC):
    """Trace of a run under way."""

    # Of time.perf_counter_ns().
    began_ns: int
    # Fields for its RunDescription, besides those of all runs.
    fields: Mapping[str, str | bool] = {}
    # Context in which the runs that it consists of are made; None for any.
    context: Context | None = None

    @abstractmethod
    def end(self, outcome: Outcome) -> None:
        """Record the end, in any thread. Take no lock: a signal handler may interrupt this."""


class Undertaking:
    """Work that makes runs or calls. This base records nothing."""

    def __init__(self) -> None:
        """Create it; runs and calls are made in `context`."""
        self.context = copy_context()

    def end(self, error: BaseException | None, stages: Sequence[Stage] = (), **about: str | int) -> None:
        """Record the end, with stages and facts; from any thread."""


class SessionTracer(ABC):
    """Tracer of one session."""

    @abstractmethod
    def begin_run(self) -> RunTrace | None:
        """Begin the trace of a run, in the calling thread; return None if nobody wants it."""

    def calling(self, method: str) -> AbstractContextManager[Metadata]:
        """Record an RPC that is made in this block, and return metadata for it."""
        return nullcontext(())

    def end(self) -> None:
        """Handle that the session has ended; its last runs may still end. Idempotent."""

    def join(self, timeout_s: float) -> None:
        """Wait until everything is recorded, at most `timeout_s`."""


class Tracer(ABC):
    """Tracer of a runtime."""

    @abstractmethod
    def of_session(self, site: Site) -> SessionTracer:
        """Return the tracer of a new session. Not called in the main thread."""

    def begin_build(self) -> Undertaking:
        """Begin the trace of a build, in the calling thread."""
        return Undertaking()

    def begin_pooled_run(self) -> RunTrace | None:
        """Begin the trace of a pool's run, in the calling thread; return None if nobody wants it."""
        return None
