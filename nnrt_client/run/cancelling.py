"""Cancellation of runs in the daemon."""

import logging
from collections.abc import Callable
from functools import partial
from itertools import islice

from nnrt_client.run.session_runs import SessionRuns
from nnrt_client.session.errands import begin
from nnrt_client.session.session import Session
from nnrt_hdi.errors import ConnectionFailed, TimedOut
from nnrt_hdi.limits import MAX_RUN_IDS
from nnrt_hdi.v2 import prepared_model_pb2

_log = logging.getLogger(__name__)


class Canceller:
    """Sender of cancellations: one CancelRuns call at a time, with all runs that wait for it. Belongs to the loop."""

    def __init__(self, session: Session, runs: SessionRuns, on_ended: Callable[[set[int]], object]) -> None:
        """Create it. `on_ended` is called with the ids of runs that the daemon has ended or never had."""
        self._session = session
        self._runs = runs
        self._on_ended = on_ended
        # Ids that the daemon doesn't know of yet, in order.
        self._run_ids: dict[int, None] = {}
        self._is_telling = False

    def tell(self, run_id: int) -> None:
        """Cancel one more run."""
        self._run_ids[run_id] = None
        self._begin()

    def _begin(self) -> None:
        if self._run_ids and not self._is_telling and self._runs.death is None:
            run_ids = list(islice(self._run_ids, MAX_RUN_IDS))
            told = partial(self._runs.post, self._told, run_ids)
            self._is_telling = begin(partial(self._tell, run_ids), told)  # Else the next one tries again.

    def _tell(self, run_ids: list[int]) -> set[int] | None:
        """Make the call, in a thread that may wait.

        Returns:
            The ids of runs that have ended, or None if the daemon got no call.
        """
        try:
            request = prepared_model_pb2.CancelRunsRequest(run_ids=run_ids)
            reply = self._session.call("PreparedModel.CancelRuns", request, self._session.settings.query_timeout_s)
            return set(run_ids) - set(reply.stopping_run_ids)
        except (ConnectionFailed, TimedOut) as error:  # Try again: else the daemon would keep the replies for ever.
            _log.debug("it is told again of cancelled runs: %r", error)
            return None
        except Exception as error:  # Whatever it is, later cancellations must be sent.
            _log.debug("cancelled runs may go on: %r", error)
        return set()

    def _told(self, run_ids: list[int], ended: set[int] | None) -> None:
        if ended is not None:
            for run_id in run_ids:
                self._run_ids.pop(run_id, None)
            self._on_ended(ended)
        self._is_telling = False
        self._begin()
