"""Interface that a session's dispatcher offers to the objects that it consists of."""

from collections.abc import Callable, Iterator
from typing import Protocol

from nnrt_client.run.run import Run
from nnrt_client.session.broken_call import BrokenCall
from nnrt_hdi.errors import NnrtError


class SessionRuns(Protocol):
    """Session's dispatcher, as its ways, links, fetches and timer use it.

    Any thread may call `post`, `fetch` and `expire`. Only the loop calls the other methods.
    """

    # Why the session has ended, or None.
    death: NnrtError | None

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the loop's thread."""

    def place(self, run: Run) -> None:
        """Choose the Way of a run, and add it to the runs that wait there for a link."""

    def send_over_grpc(self, run: Run, *, former_id: int = 0) -> None:
        """Send a run over gRPC. Give it a new id if it has `former_id`, which the daemon must not see again."""

    def fetch(self, run: Run, since: int) -> None:
        """Fetch a reply that is too long for the run's link. `since` is the attachment at which the link was opened."""

    def fetch_lost(self, run: Run, broken: BrokenCall, since: int) -> None:
        """Fetch the reply of a run whose link broke. `since` is the attachment at which the link was opened."""

    def expire(self, run: Run) -> None:
        """End a run that is late."""

    def forget(self, run_id: int) -> None:
        """Ask the daemon to stop a run that has ended in the client, or to free the reply that it keeps."""

    def under_way(self) -> Iterator[Run]:
        """Yield all runs that have begun and not ended, and ended ones that are still on a link."""

    def wake_at(self, until: float) -> None:
        """Check all runs and ways at this time (time.monotonic()) or sooner."""

    def end_if_over(self) -> None:
        """Stop the timer and wake `wait_ended`, if no link and no fetch is left. Called after the session has ended."""
