"""Cancellation of runs in the daemon."""

import logging
from collections.abc import Callable
from functools import partial
from itertools import islice

from nnrt_client.run.session_runs import SessionRuns
from nnrt_client.session.errands import start_in_worker
from nnrt_client.session.session import Session
from nnrt_hdi.errors import ConnectionFailed, TimedOut
from nnrt_hdi.limits import MAX_RUN_IDS
from nnrt_hdi.v2 import prepared_model_pb2

_log = logging.getLogger(__name__)


class Canceller:
    """Sender of CancelRuns calls: one at a time, for all runs cancelled meanwhile. Only the loop calls this."""

    def __init__(self, session: Session, runs: SessionRuns, on_ended: Callable[[set[int]], object]) -> None:
        """Create it. It calls `on_ended` with the ids of runs that the daemon has ended or never got."""
        self._session = session
        self._runs = runs
        self._on_ended = on_ended
        # Ids of cancelled runs that no call has reported to the daemon yet, in order.
        self._run_ids: dict[int, None] = {}
        self._is_calling = False

    def cancel(self, run_id: int) -> None:
        """Ask the daemon to cancel a run."""
        self._run_ids[run_id] = None
        self._begin()

    def _begin(self) -> None:
        if self._run_ids and not self._is_calling and self._runs.death is None:
            run_ids = list(islice(self._run_ids, MAX_RUN_IDS))
            then = partial(self._runs.post, self._finish_call, run_ids)
            # If no thread can be started, the next `cancel` tries again.
            self._is_calling = start_in_worker(partial(self._call, run_ids), then)

    def _call(self, run_ids: list[int]) -> set[int] | None:
        """Call CancelRuns, in a thread that may block.

        Returns:
            The ids of runs that have ended, or None if the call may not have reached the daemon.
        """
        try:
            request = prepared_model_pb2.CancelRunsRequest(run_ids=run_ids)
            reply = self._session.call("PreparedModel.CancelRuns", request, self._session.settings.query_timeout_s)
            return set(run_ids) - set(reply.stopping_run_ids)
        except (ConnectionFailed, TimedOut) as error:  # Try again: else the daemon would keep the replies for ever.
            _log.debug("CancelRuns will be repeated: %r", error)
            return None
        except Exception as error:  # Later cancellations must be sent after any error.
            _log.debug("cancelled runs may go on: %r", error)
        return set()

    def _finish_call(self, run_ids: list[int], ended: set[int] | None) -> None:
        if ended is not None:
            for run_id in run_ids:
                self._run_ids.pop(run_id, None)
            self._on_ended(ended)
        self._is_calling = False
        self._begin()
