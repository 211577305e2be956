"""Interface of a session's dispatcher for its parts."""

from collections.abc import Callable, Iterator
from typing import Protocol

from nnrt_client.run.run import Run
from nnrt_client.session.broken_call import BrokenCall
from nnrt_hdi.errors import NnrtError


class SessionRuns(Protocol):
    """Runs of a session: where they go, and how they end.

    Any thread may call `post`, `fetch` and `expire`; only the loop calls the rest.
    """

    # Why the session has ended, or None.
    death: NnrtError | None

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Let the loop call a function."""

    def place(self, run: Run) -> None:
        """Choose a way for a run, which waits there for a link."""

    def send_over_grpc(self, run: Run, *, former_id: int = 0) -> None:
        """Send a run over gRPC; under a new id, if it still has `former_id`, which the daemon must not see again."""

    def fetch(self, run: Run, since: int) -> None:
        """Fetch a reply that is too long for the run's link. `since` is the attachment at which the link was opened."""

    def fetch_lost(self, run: Run, broken: BrokenCall, since: int) -> None:
        """Fetch the reply of a run whose link broke. `since` is the attachment at which the link was opened."""

    def expire(self, run: Run) -> None:
        """End a run that is late."""

    def forget(self, run_id: int) -> None:
        """Let the daemon stop a run, or free the reply that it keeps of a run that has ended here."""

    def under_way(self) -> Iterator[Run]:
        """Yield all runs that have begun and not ended, or that are still on a link."""

    def wake_at(self, until: float) -> None:
        """Check runs and ways at that time or sooner."""

    def end_if_over(self) -> None:
        """Record the end of everything, if the session has ended and no link and no fetch is left."""
