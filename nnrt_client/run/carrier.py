"""Ways for runs to travel: a carrier has streams, and each stream carries one run at a time, or one packet of them."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from nnrt_client.run.run import Run
from nnrt_client.run.waiting_runs import WaitingRuns
from nnrt_hdi.errors import NnrtError


class Stream(Protocol):
    """A connection of a carrier. Whoever reads a reply there tells the queue: by `answered`, `kept`, `lost` or
    `could_not_read`."""

    lane: "Lane"
    # The run whose reply is to come on it; one that has ended meanwhile stays until then. None where there are several.
    run: Run | None
    # The last run whose reply has come on it. The next request tells the daemon so.
    answered: int
    # That of the session, when the stream was opened: the daemon breaks off those of an earlier one.
    attachment: int
    # Whether it carries nothing any more.
    is_over: bool

    @property
    def runs(self) -> Sequence[Run]:
        """The runs whose replies are to come on it."""

    def carries(self, run: Run) -> bool:
        """Tell if a run is one of these."""

    def take_off(self) -> Sequence[Run]:
        """Carry none of these any more."""

    def send(self, run: Run, packet: Any) -> None:
        """Send a run, without waiting for the daemon. Raises OSError where nothing of it can be sent; whoever reads the
        stream learns that it is broken."""

    def read_here(self, run: Run) -> None:
        """Read until the run has ended, in the thread that waits for it. Only where `Carrier.is_read_by_callers`."""

    def read_elsewhere(self) -> None:
        """Have a thread of the carrier read the reply when it comes. Idempotent."""

    def stop(self, run: Run, reason: NnrtError) -> None:
        """See that the reply of a run is read, though nobody wants its outputs. End the run with the reason unless the
        daemon may write into memory of the application. Never called in the main thread."""

    def shut_down(self) -> None:
        """End the stream; whoever reads it finds what had arrived, and then its end."""

    def close(self) -> None:
        """Free what the stream holds. Nobody reads it any more."""


class OneRun:
    """A stream that carries one run at a time, as far as that goes."""

    run: Run | None

    @property
    def runs(self) -> Sequence[Run]:
        run = self.run
        return () if run is None else (run,)

    def carries(self, run: Run) -> bool:
        return self.run is run

    def take_off(self) -> Sequence[Run]:
        runs, self.run = self.runs, None
        return runs


class Carrier(Protocol):
    """Makes streams."""

    # Whether the thread that waits for a run can read its reply.
    is_read_by_callers: bool

    def pack(self, run: Run) -> Any:
        """Make what is sent of a run: copies inputs and shares memory where it must. Raises NnrtError for a run that
        can't go this way."""

    def opened(self, lane: "Lane") -> Stream:
        """Open a stream of a lane. Raises NnrtError where none is to be had. Never called in the main thread."""

    def end(self) -> None:
        """End the carrier's threads when they have read what there is. The session is over."""

    def wait_ended(self, timeout_s: float) -> None:
        """Wait until these threads have ended, but for the one that calls this."""


class Lane:
    """A carrier, its streams, and the runs that wait for one of them. Its state is the queue's to change."""

    def __init__(self, carrier: Carrier, limit: int, has_room_for_main: bool) -> None:
        """`limit` streams may be open, and one for the main thread where there is room for it."""
        self.carrier = carrier
        self.limit = limit
        self.has_room_for_main = has_room_for_main
        self.streams: set[Stream] = set()
        self.opening = 0
        self.idle: deque[Stream] = deque()
        # The main thread's own: what it has in hand when it is interrupted is nobody else's.
        self.mains: Stream | None = None
        self.waiting: WaitingRuns[Run] = WaitingRuns()
        self.has_waiting = False
