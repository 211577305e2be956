"""Dispatcher of a session: sends runs by local socket or gRPC, and makes sure that each one ends."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import count

from nnrt_client.run.await_run import AwaitedRun, Fetches
from nnrt_client.run.cancelling import Canceller
from nnrt_client.run.early_ends import EarlyEnds
from nnrt_client.run.failures import nnrt_error_of
from nnrt_client.run.link import Link
from nnrt_client.run.links import Opening
from nnrt_client.run.result import never_sent
from nnrt_client.run.run import Run
from nnrt_client.run.way import COULD_NOT_SEND, LocalWay, RemoteWay, SharedWay, Way
from nnrt_client.session.broken_call import BrokenCall
from nnrt_client.session.fork import LockOwner
from nnrt_client.session.io_loop import io_loop
from nnrt_client.session.latch import Latch
from nnrt_client.session.session import Session
from nnrt_hdi.errors import NnrtError, OperationFailed

_log = logging.getLogger(__name__)

# Number of a session's streams that stay free for uploads.
_RESERVED_STREAMS = 2


class SessionDispatcher(LockOwner):
    """Dispatcher of the runs of one session.

    A thread that waits for its run sends it on a link of its own and reads the reply there, without waking another
    thread. The loop does everything else: submitted runs, runs that find no link, links that their threads left,
    deadlines, cancellation, and runs whose connection was lost.

    While the session has no channel, runs wait. When it has one again, it sends new runs and fetches the replies of
    those under way.
    """

    def __init__(self, session: Session) -> None:
        """Create it. Only `Session.part` calls this."""
        self._session = session
        self.call_back = session.call_back
        self._mailbox = io_loop().mailbox(self._message_failed, self._dispatch)
        self.post = self._mailbox.post
        self.death: NnrtError | None = None
        most = session.welcome.limits.session_streams
        self._remote = RemoteWay(session, self, max(most - _RESERVED_STREAMS - 1, 1))
        self._local: LocalWay | None = None
        self._shared: SharedWay | None = None
        if (socket := session.local_socket) is not None:
            # The daemon allows as many connections as streams, and none is kept for uploads.
            self._local = LocalWay(session, self, socket, max(most - _RESERVED_STREAMS, 1))
            self._shared = SharedWay(session, self, socket)
        self._ways: Sequence[Way] = [way for way in (self._shared, self._local, self._remote) if way is not None]
        self._run_ids = count(1)
        # Whether the ways and the runs that wait there have ended. Until then nothing is over: a way may have no link.
        self._are_ways_ended = False
        self._over = Latch()
        # The daemon allows as many AwaitRun and CancelRuns calls as streams. Use half of that, because it counts each
        # call until a while after the reply.
        self._fetches = Fetches(session, self, max(most // 2, 1))
        self._early_ends = EarlyEnds(session, self, self._ways)
        self.wake_at = self._early_ends.wake_at
        self._canceller = Canceller(session, self, self._early_ends.confirm_ended)
        super().__init__()
        session.on_death(self._end)
        session.on_attached(lambda: self.post(self._reattached))

    def _enter_child(self, reason: NnrtError) -> None:
        self.death = self.death or reason
        for run in list(self.under_way()):
            run.fail_in_child(reason)
        for way in self._ways:
            way.forget()
        self._over.set()

    def _message_failed(self, error: Exception, arguments: Sequence[object]) -> None:
        """End the runs and openings among the arguments of a message whose function raised an error."""
        runs: list[Run] = []
        for one in arguments:
            if isinstance(one, Run):
                runs.append(one)
            elif isinstance(one, AwaitedRun):
                runs.append(one.run)
            elif isinstance(one, Link):
                runs += one.take_off()
            elif isinstance(one, Opening):
                one.end()
        for run in runs:
            run.fail(nnrt_error_of(error, COULD_NOT_SEND))
        _log.error("%s: what a run needs failed", self._session.place, exc_info=error)

    # ---- for executors, in any thread

    def run_sync(self, run: Run) -> None:
        """Send a run and wait until it ends. If the session has ended, raise the error that ended it."""
        run.id = next(self._run_ids)
        if self.death is not None:
            raise never_sent(self.death)
        session = self._session
        way = self._local if self._local is not None and run.signature.fits_packet else self._remote
        link = None
        if session.is_attached:
            link = way.links.idle_of_thread(session.attachment) or way.links.open_for_thread(run.deadline)
        if link is None:
            self.post(self.place, run)
        elif way.send_here(link, run):
            link.wait(run)
            return
        run.ended.wait()

    def start(self, run: Run) -> None:
        """Send a run and return. If the session has ended, raise the error that ended it."""
        run.id = next(self._run_ids)
        if self.death is not None:
            raise never_sent(self.death)
        self.post(self.place, run)

    def give_up(self, run: Run, *, is_left: bool = False) -> None:
        """End a cancelled run. `is_left`: the thread that waited for it has stopped waiting."""
        self.post(self._early_ends.give_up, run, is_left)

    def wait_ended(self, timeout_s: float) -> None:
        """Wait until all runs of an ended session have ended. Return at once in a thread that ends them."""
        if not io_loop().is_here and threading.current_thread() not in self._remote.readers:
            until = time.monotonic() + timeout_s
            self._over.wait(timeout_s)
            for reader in list(self._remote.readers):
                reader.join(max(until - time.monotonic(), 0.0))

    # ---- for links, in any thread

    def fetch(self, run: Run, since: int) -> None:
        """Fetch a reply that is too long for the run's link. `since` is the attachment at which the link was opened."""
        self.post(self._fetches.add, run, None, since)

    def expire(self, run: Run) -> None:
        """End a run that is late."""
        self.post(self._early_ends.expire, run)

    # ---- in the loop

    def place(self, run: Run) -> None:
        """Choose the Way of a run, and add it to the runs that wait there for a link."""
        if run.ended.is_set:
            return
        way: Way = self._remote
        if self._local is not None and self._shared is not None and run.signature.fits_packet:
            is_late = self._shared.late_at <= time.monotonic()
            way = self._shared if not is_late and self._shared.takes(run) else self._local
        self._place_on(way, run)

    def send_over_grpc(self, run: Run, *, former_id: int = 0) -> None:
        """Send a run over gRPC. Give it a new id if it has `former_id`, which the daemon must not see again."""
        if run.id == former_id:
            run.id, run.link, run.packet = next(self._run_ids), None, None
        self._place_on(self._remote, run)
        self._remote.dispatch()

    def _place_on(self, way: Way, run: Run) -> None:
        if self.death is not None:
            run.fail(never_sent(self.death))
        elif not run.ended.is_set and run.carrying is None:  # Else it has a link already.
            self._early_ends.end_at(run.deadline)
            way.add(run)

    def fetch_lost(self, run: Run, broken: BrokenCall, since: int) -> None:
        """Fetch the reply of a run whose link broke. `since` is the attachment at which the link was opened."""
        if run.ended.is_set or self.death is not None:
            # For a run that has ended, this repeats steps of ending that had run out of memory.
            run.fail((self.death or OperationFailed("the link was lost")).copy())
        else:
            self._fetches.add(run, broken, since)
            self._early_ends.end_at(run.deadline)

    def forget(self, run_id: int) -> None:
        """Ask the daemon to stop a run that has ended in the client, or to free the reply that it keeps."""
        if self.death is None:
            self._canceller.cancel(run_id)

    def under_way(self) -> Iterator[Run]:
        """Yield all runs that have begun and not ended, and ended ones that are still on a link."""
        for way in self._ways:
            yield from way.under_way()
        yield from list(self._early_ends.stopping)
        yield from self._fetches.under_way()
        yield from [one for one in self._mailbox.arguments() if isinstance(one, Run)]

    def _dispatch(self) -> None:
        """Send waiting runs on all ways."""
        for way in self._ways:
            way.dispatch()

    def _reattached(self) -> None:
        """Close links of the former channel, because the session has connected again."""
        for way in self._ways:
            way.links.close_former(self._session.attachment)

    # ---- the end

    def _end(self, reason: NnrtError) -> None:
        """End all runs because the session has ended.

        Waiting runs end at once. A run on a link ends when the link has been read to the end, so that the client still
        reads a reply that has arrived.
        """
        self.death = reason
        self.post(self._end_all, reason)

    def _end_all(self, reason: NnrtError) -> None:
        for way in self._ways:
            way.end(reason)
        self._are_ways_ended = True
        self.end_if_over()

    def end_if_over(self) -> None:
        """Stop the timer and wake `wait_ended`, if no link and no fetch is left."""
        if self._are_ways_ended and not self._fetches and not any(way.links.has_any for way in self._ways):
            self._early_ends.sleep()
            self._over.set()
