"""Supply of a single replica, which is reloaded when a run needs it after its daemon has died."""

import logging
import math
import threading
import time
from collections.abc import Callable
from functools import partial

from nnrt_client.build.build_task import Progress
from nnrt_client.pool.candidate import Candidate
from nnrt_client.pool.outage import Outage
from nnrt_client.pool.parking import Parking, Waiting
from nnrt_client.pool.replica import GUESSED_S, Loaded, Replica
from nnrt_client.pool.supply import Supply
from nnrt_client.session.errands import call_in_worker
from nnrt_client.session.fork import ModuleLock
from nnrt_client.session.io_loop import io_loop
from nnrt_hdi.errors import NnrtError, OperationFailed, OperationForbidden, OutOfMemory

_log = logging.getLogger(__name__)

# Seconds to wait for the end of each run whose daemon has died.
_END_S = 5.0


# Loads the model. Arguments: a progress callback, and the seconds for which to look for the device.
LoadAgain = Callable[[Progress, float], Loaded]


class OneReplica(Supply):
    """Supply of one replica. If its daemon has died, a run starts to reload it, in another thread, and waits for it."""

    def __init__(self, load_again: LoadAgain, progress: Progress | None = None, wait_s: float = 0.0) -> None:
        """Load the model. Raise the errors of `load_again`."""
        self._load_again = load_again
        self._progress = progress
        self.is_open = True
        self.end_reason: NnrtError | None = None
        self.missing = {}
        self._take(load_again(self._report_progress, wait_s))
        self._lock = ModuleLock()
        self._outage = Outage()
        # Whether the model is being loaded.
        self._is_loading = False
        self.parking = Parking()

    @property
    def loaded(self) -> Loaded:
        """Loaded model, whose daemon may be dead."""
        return self._replica.loaded

    @property
    def serving(self) -> tuple[Replica, ...]:
        """The replica, or nothing if its daemon is dead."""
        return (self._replica,) if self._replica.is_alive else ()

    def choose(self) -> Replica | None:
        """Return the replica, or None if its daemon is dead."""
        replica = self._replica
        return replica if replica.is_alive else None

    def park(self, run: Waiting) -> None:
        """Queue a run until the model is reloaded or the run is late. Start the reload.

        Raises:
            UnavailableDevice: The last reload failed, and the next one isn't due yet.
        """
        if self.end_reason is not None:
            raise self.end_reason.copy()
        self._outage.require_due()
        self.parking.add(run)
        try:
            is_loading = call_in_worker(self._begin)
        except BaseException:
            self.parking.take(run)
            raise
        if not is_loading:
            self.parking.resume_all()
        elif run.waits_until < math.inf:
            loop = io_loop()
            loop.call(loop.events.call_later, max(run.waits_until - time.monotonic(), 0.0), self._expire, run)

    def _expire(self, run: Waiting) -> None:
        """Resume a run that is late, if it still waits. The loop calls this."""
        if self.parking.take(run):
            run.resume()

    def call_back(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in a thread for callbacks."""
        self.loaded.device._latest.call_back(function, *arguments)

    def begin_soon(self, begin: Callable[[], object]) -> None:
        """Call a function in the calling thread. It doesn't block: if the daemon is dead, it parks its run."""
        begin()

    def close(self) -> None:
        """End the runs under way and free the model. Idempotent.

        This doesn't wait for a reload under way, which ends at its next progress report and frees its objects.
        """
        self.is_open = False
        self.end_reason = self.end_reason or OperationFailed("the session was closed")
        self.parking.resume_all(self.end_reason)
        self._replica.loaded.close()

    def enter_child(self, reason: NnrtError) -> None:
        """End the supply in a forked child."""
        self.end_reason, self.is_open = reason, False

    def _begin(self) -> bool:
        """Start to reload the model, unless a reload is under way. Return False if the model is loaded."""
        with self._lock.itself:
            if not self.is_open:
                raise OperationForbidden("the session is closed; load the model again")
            if self.choose() is not None:
                return False
            if not self._is_loading:
                self._outage.require_due()
                try:
                    threading.Thread(target=self._load, name="nnrt-reload", daemon=True).start()
                except RuntimeError as error:  # No thread is left.
                    raise OutOfMemory(f"the model can't be loaded again: {error}") from error
                self._is_loading = True
            return True

    def _load(self) -> None:
        error: NnrtError | None = None
        try:
            loaded = self._outage.end(partial(self._load_again, self._report_progress, 0.0))
            dead = self._replica
            self._take(loaded)
            if not self.is_open:  # `close` may have closed only the former model.
                loaded.close()
            for run in list(dead.under_way):  # Each one ends soon, because its daemon is dead.
                run.ended.wait(_END_S)
            dead.loaded.close()
        except NnrtError as failure:
            error = failure
        except Exception as failure:
            _log.exception("the model was not loaded again")
            error = OperationFailed(f"the model could not be loaded again: {failure!r}")
        with self._lock.itself:
            self._is_loading = False
        self.parking.resume_all(error)

    def _take(self, loaded: Loaded) -> None:
        """Use this loaded model for runs from now on."""
        self._replica = Replica(Candidate(loaded.device.address), loaded, GUESSED_S)
        self.signature = self._replica.dispatcher.signature

    def _report_progress(self, stage: str, fraction: float) -> None:
        """Report the progress of a build. Raise OperationFailed if the session was closed, which ends the build."""
        if not self.is_open:
            raise OperationFailed("the session was closed")
        if self._progress is not None:
            self._progress(stage, fraction)
