"""Who is told of runs and builds. Without a tracer nothing of this is on the way of a run."""

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
    """A session, as far as traces name it."""

    device: str
    address: str
    # The first 8 hex digits of its id.
    session: str
    # Whether the daemon makes spans of its own.
    makes_spans: bool
    # Whether its device can tell what operators take.
    profiles: bool


class Stage(NamedTuple):
    """A part of a build; times are on the clock of time.perf_counter_ns."""

    name: str
    began_ns: int
    ended_ns: int


class Outcome(NamedTuple):
    """A run that has ended."""

    run_id: int
    model_id: int
    # On the clock of time.perf_counter_ns.
    began_ns: int
    ended_ns: int
    # Of a run that has succeeded: where its time went, which is known once who waited for it has gone on.
    times: Callable[[], RunTimes]
    input_bytes: int
    output_bytes: int
    operators: Sequence[OperatorTime]
    failure: Failure | None


class RunTrace(ABC):
    """One run under way."""

    # On the clock of time.perf_counter_ns.
    began_ns: int
    # Of its RunDescription, besides what all have.
    fields: Mapping[str, str | bool] = {}
    # The one in which runs are made that it is made of; None where any will do.
    context: Context | None = None

    @abstractmethod
    def end(self, outcome: Outcome) -> None:
        """Take note of its end. Any thread; takes no lock, for it may be the main thread."""


class Undertaking:
    """Something under way that makes runs, or calls. By itself it takes no note of anything."""

    def __init__(self) -> None:
        """What it makes is made in `context`."""
        self.context = copy_context()

    def end(self, error: BaseException | None, stages: Sequence[Stage] = (), **about: str | int) -> None:
        """Take note of its end, and of what is to be known about it. Any thread."""


class SessionTracer(ABC):
    """Told of what is done in one session."""

    @abstractmethod
    def begin_run(self) -> RunTrace | None:
        """Take note of a run that begins, in the thread that asks for it; None where nobody wants to know of it."""

    def calling(self, method: str) -> AbstractContextManager[Metadata]:
        """Take note of an RPC that is made in this block, and give metadata for it."""
        return nullcontext(())

    def end(self) -> None:
        """The session is over; runs that end with it may still be told of. Idempotent."""

    def join(self, timeout_s: float) -> None:
        """Wait until all that was told of has been taken note of, so long at most."""


class Tracer(ABC):
    """Told of what is done with a runtime."""

    @abstractmethod
    def of_session(self, site: Site) -> SessionTracer:
        """Begin with a session. Not called in the main thread."""

    def begin_build(self) -> Undertaking:
        """Take note of a build that begins, in the thread that asks for it."""
        return Undertaking()

    def begin_pooled_run(self) -> RunTrace | None:
        """Take note of a run of a pool, which is made in attempts, in the thread that asks for it; None where nobody
        wants to know of it."""
        return None
