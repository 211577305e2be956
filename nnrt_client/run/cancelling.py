"""Cancellations on their way to the daemon."""

import logging
import queue
from collections.abc import Callable

from nnrt_client.session.errands import begin
from nnrt_client.session.session import Session
from nnrt_hdi.errors import ConnectionFailed, TimedOut
from nnrt_hdi.limits import MAX_RUN_IDS
from nnrt_hdi.v2 import prepared_model_pb2

_log = logging.getLogger(__name__)


# The thread ends after so long without anything to tell.
_IDLE_S = 0.2


class Canceller:
    """Tells the daemon which runs are of no use any more, in a thread that lasts as long as there are some. The
    loop's."""

    def __init__(self, session: Session, on_told: Callable[[set[int]], object]) -> None:
        """`on_told` is called with the runs that the daemon has ended, or never had."""
        self._session = session
        self._on_told = on_told
        self._run_ids: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._has_begun = False

    def tell(self, run_id: int) -> None:
        """Tell of one more."""
        self._run_ids.put(run_id)
        if not self._has_begun:
            self._has_begun = True
            self._has_begun = begin(self._tell)  # Else the next one tries again.

    def stop(self) -> None:
        """End the thread: the session is over."""
        self._run_ids.put(None)

    def _next(self) -> int | None:
        """Wait for one more; None where none comes, or the session is over."""
        while True:
            try:
                return self._run_ids.get(timeout=_IDLE_S)
            except queue.Empty:
                self._has_begun = False
                if self._run_ids.empty():
                    return None
                self._has_begun = True  # One came just then; two threads do no harm.

    def _tell(self) -> None:
        try:
            self._tell_all()
        finally:
            self._has_begun = False

    def _tell_all(self) -> None:
        while (run_id := self._next()) is not None:
            request = prepared_model_pb2.CancelRunsRequest(run_ids=[run_id])
            while not self._run_ids.empty() and len(request.run_ids) < MAX_RUN_IDS:
                if (run_id := self._run_ids.get()) is None:
                    return
                request.run_ids.append(run_id)
            try:
                reply = self._session.call("PreparedModel.CancelRuns", request, self._session.settings.query_timeout_s)
                self._on_told(set(request.run_ids) - set(reply.stopping_run_ids))
            except (ConnectionFailed, TimedOut) as error:  # Else the daemon would keep their replies to the end.
                _log.debug("it is told again of cancelled runs: %r", error)
                for run_id in request.run_ids:
                    self._run_ids.put(run_id)
            except Exception as error:  # Whatever it is, later ones are told of.
                _log.debug("cancelled runs may go on: %r", error)
