"""What the parts of a session's dispatcher ask of it."""

from collections.abc import Callable, Iterator
from typing import Protocol

from nnrt_client.run.run import Run
from nnrt_client.session.broken_call import BrokenCall
from nnrt_hdi.errors import NnrtError


class SessionRuns(Protocol):
    """The runs of a session: where they go, and how they end. Any thread may call `post`, `fetch` and `expire`, all
    else is the loop's."""

    # Why the session is over, if it is.
    death: NnrtError | None

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Have the loop call this."""

    def place(self, run: Run) -> None:
        """Find a way for a run, and have it wait there for a link until that is looked after."""

    def send_over_grpc(self, run: Run, *, former_id: int = 0) -> None:
        """Have a run go over gRPC: as a new one if it still has the id that the daemon must not see again."""

    def fetch(self, run: Run, since: int) -> None:
        """Fetch the reply of a run that is too long for its link, which was opened at that attachment."""

    def fetch_lost(self, run: Run, broken: BrokenCall, since: int) -> None:
        """Fetch the reply of a run whose link is over, which was opened at that attachment."""

    def expire(self, run: Run) -> None:
        """End a run whose time is over."""

    def forget(self, run_id: int) -> None:
        """Let the daemon stop a run, or give up what it keeps of one whose reply is here."""

    def under_way(self) -> Iterator[Run]:
        """Yield all runs that have begun, and not ended, or that are still on a link."""

    def wake_at(self, until: float) -> None:
        """Look after runs and ways at that time, or sooner."""

    def end_if_over(self) -> None:
        """Note that all of a session has ended that is over, if it has."""
