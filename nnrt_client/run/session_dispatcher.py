"""The dispatcher of a session: places runs on its links, and sees that each one ends."""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from time import perf_counter_ns
from typing import Any

from nnrt_client.run.await_run import AwaitedRun
from nnrt_client.run.cancelling import Canceller
from nnrt_client.run.failures import nnrt_error_of
from nnrt_client.run.link import TICK_S, Link, LocalLink
from nnrt_client.run.result import never_sent
from nnrt_client.run.run import Run
from nnrt_client.run.way import LocalWay, RemoteWay, SharedWay, Wanted, Way
from nnrt_client.session.broken_call import BrokenCall
from nnrt_client.session.fork import LockOwner
from nnrt_client.session.io_loop import io_loop
from nnrt_client.session.latch import Latch
from nnrt_client.session.session import Session
from nnrt_hdi.errors import ConnectionFailed, NnrtError, OperationFailed, TimedOut
from nnrt_hdi.signals import raised_by_handler

_log = logging.getLogger(__name__)

# Streams of a session that are left for uploads.
_RESERVED_STREAMS = 2
# Inputs of more than this are copied in a thread that nobody else waits for.
_LARGE_BYTES = 1 << 20
# A reply that the daemon has sent is here after so long, or has been lost.
_ARRIVAL_S = 0.05
# Links that are opened at a time: the daemon has a thread for each that comes.
_MOST_OPENING = 2
# So often the loop looks after links of threads: they may have ended, or have been interrupted.
_LOOK_AGAIN_S = 1.0

# Such as no descriptor left, no thread, or no memory.
_SHORTAGES = (NnrtError, RuntimeError, MemoryError, OSError)
_COULD_NOT_SEND = "the run could not be sent"


class SessionDispatcher(LockOwner):
    """Places the runs of a session.

    A thread that waits for its run sends it on a link of its own and reads the reply there: no other thread wakes. All
    else belongs to the loop: runs that nobody waits for in a thread of their own or that find no link, links that were
    left busy, deadlines, cancellations, and what follows a lost connection. Who calls a method here that isn't said to
    be the loop's only leaves a message for the loop.

    While the session has no channel runs wait: new ones for a link, and those under way for their replies, which are
    fetched when there is one again.
    """

    def __init__(self, session: Session) -> None:
        """Made by `Session.part`."""
        self._session = session
        self.call_back = session.call_back
        self._loop = io_loop()
        self._messages: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        most = session.welcome.limits.session_streams
        self._remote = RemoteWay(session, self, max(most - _RESERVED_STREAMS - 1, 1))
        self._local: LocalWay | None = None
        self._shared: SharedWay | None = None
        if (socket := session.local_socket) is not None:
            # It has as many connections as gRPC has streams, and none is for uploads.
            self._local = LocalWay(session, self, socket, max(most - _RESERVED_STREAMS, 1))
            self._shared = SharedWay(session, self, socket, 1)
        self._ways: list[Way] = [way for way in (self._shared, self._local, self._remote) if way is not None]
        self._run_ids = count(1)
        self._death: NnrtError | None = None
        self._over = Latch()
        # Runs that are to end early but are still on a link, with the time that the daemon has to end them.
        self._stopping: dict[Run, float] = {}
        # Runs with large inputs that are being copied.
        self._packing: set[Run] = set()
        self._awaited: set[AwaitedRun] = set()
        # The daemon takes as many calls that fetch and cancel as streams, and counts one for a while after its reply.
        self._most_fetches = max(most // 2, 1)
        self._to_fetch: deque[AwaitedRun] = deque()
        self._canceller = Canceller(session, lambda run_ids: self._post(self._expect_end, run_ids))
        self._wakes_at = math.inf
        self._timer: Any = None
        super().__init__()
        session.on_death(self._end)
        session.on_attached(lambda: self._post(self._reattached))

    def _make_locks(self) -> None:
        """It has none."""

    def _enter_child(self, reason: NnrtError) -> None:
        self._death = self._death or reason
        for run in list(self._under_way()):
            run.fail_in_child(reason)
        for way in self._ways:
            way.forget()
        self._over.set()

    def _post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have the loop call this."""
        self._messages.append((function, arguments))
        self._loop.call(self._take_messages)

    def _take_messages(self) -> None:
        """Do what other threads have asked for. The loop's."""
        while self._messages:
            function, arguments = self._messages.popleft()
            try:
                function(*arguments)
            except Exception as error:  # Of memory, perhaps. Others wait for the loop.
                _log.exception("%s: what a run needs failed", self._session.place)
                for run in [one for one in arguments if isinstance(one, Run)]:
                    run.fail(nnrt_error_of(error, _COULD_NOT_SEND))
            del function, arguments  # They keep no tensors alive.

    # ---- runs

    def run_here(self, run: Run) -> None:
        """Send a run, and wait for its end. Raises the session's death, if it is over."""
        run.id = next(self._run_ids)
        way = self._local if self._local is not None and run.signature.fits_packet else self._remote
        link = self._own_link(way)
        if link is None:
            self._post(self._arrive, run)
            run.ended.wait()
        elif self._sent(way, link, run):
            link.wait(run)
        else:
            run.ended.wait()

    def start(self, run: Run) -> None:
        """Send a run; it ends some time. Raises the session's death, if it is over."""
        run.id = next(self._run_ids)
        if self._death is not None:
            raise never_sent(self._death)
        self._post(self._arrive, run)

    def give_up(self, run: Run, *, is_left: bool = False) -> None:
        """End a run that was given up, wherever it is. The daemon stops it too. `is_left`: the thread that waited for
        it does so no more.

        One whose outputs the daemon itself writes into tensors ends when the daemon has confirmed that it has stopped,
        or after `verdict_timeout_s`: they are the application's again then, and nothing must be written there later.
        """
        self._post(self._end_early, run, OperationFailed("the run was given up"), is_left)

    def expire(self, run: Run) -> None:
        """End a run whose time is over."""
        self._post(self._end_early, run, self._timed_out(run))

    def _timed_out(self, run: Run) -> NnrtError:
        bound = f"{run.timeout_ms} ms" if run.timeout_ms else f"{self._session.settings.run_timeout_s:g} s"
        return TimedOut(f"the run took longer than {bound}")

    def _own_link(self, way: Way) -> Link | None:
        """Give an idle link of this thread's own, a new one if need be; None where none is to be had. Raises the
        session's death."""
        if self._death is not None:
            raise never_sent(self._death)
        session = self._session
        if not session.is_attached:
            return None
        attachment, mine = session.attachment, way.own_links()
        for link in mine:
            if not (link.under_way or link.is_over or link.is_loops) and link.attachment == attachment:
                return link
        return self._another_link(way, mine)

    def _another_link(self, way: Way, mine: list[Link]) -> Link | None:
        former = [link for link in mine if not link.under_way or link.is_over or link.is_loops]
        if former:
            mine[:] = [link for link in mine if link not in former]
            self._post(self._close_all, former)
        if not way.has_room_for_threads:
            return None
        wanted = Wanted()
        try:
            self._post(self._open, way, wanted)
            wanted.ended.wait()
            if wanted.link is not None:
                mine.append(wanted.link)
        except BaseException:
            wanted.is_given_up = True
            self._post(self._take_back, way, wanted)
            raise
        return wanted.link

    def _sent(self, way: Way, link: Link, run: Run) -> bool:
        """Send a run on an idle link; false where the run goes another way, or has ended."""
        run.stamps.packing_ns = perf_counter_ns()
        try:
            run.packet = way.pack(run)
        except Exception as error:
            if raised_by_handler(error):
                raise
            self._could_not_pack(way, run, error)
            return False
        link.put_on(run)
        try:
            if link.is_over:  # The session has ended meanwhile, perhaps in a signal handler.
                raise ConnectionError("the link is closed")
            link.send((run,))
        except Exception as error:  # Such as for want of memory, or the daemon is gone. It has nothing of the run.
            # One that has ended meanwhile has lost its inputs.
            if raised_by_handler(error) or not (isinstance(error, OSError) or run.ended.is_set):
                raise
            self._post(self._send_elsewhere, link, error)
            return False
        return True

    def _could_not_pack(self, way: Way, run: Run, error: Exception) -> None:
        if way is not self._remote and isinstance(error, _SHORTAGES) and run.given_up is None:
            _log.debug("a run goes over gRPC: %s", error)
            self._post(self._arrive, run, self._remote)
        else:
            # One that has been given up meanwhile has no inputs left.
            run.fail(run.given_up or nnrt_error_of(error, _COULD_NOT_SEND))

    # ---- what links tell

    def freed(self, link: Link) -> None:
        """The replies of all runs of a link of the loop's have been read."""
        if self._loop.is_here:
            self._free(link)
        else:
            self._post(self._free, link)

    def leave(self, link: Link) -> None:
        """Have the loop read a link whose run has ended before its reply has come."""
        self._post(self._take_over_left, link)

    def lost(self, link: Link, broken: BrokenCall) -> None:
        """Give up a link that is over; the replies of its runs may be had in another way."""
        link.is_over = link.is_lost = True
        self._post(self._lost, link, broken)

    def fetch(self, run: Run, since: int) -> None:
        """Fetch the reply of a run that is too long for its link, which was opened at that attachment."""
        self._post(self._await, run, None, since)

    # ---- the loop's: sending

    def _arrive(self, run: Run, way: Way | None = None) -> None:
        """Have a run wait for a link, in turn."""
        if self._death is not None:
            run.fail(never_sent(self._death))
            return
        if run.ended.is_set:
            return
        way = way or self._way_of(run)
        way.waiting.append(run)
        self._wake_at(run.deadline)
        self._dispatch(way)

    def _way_of(self, run: Run) -> Way:
        if self._local is None or self._shared is None or not run.signature.fits_packet:
            return self._remote
        is_late = self._shared.late_at <= time.monotonic()
        return self._shared if not is_late and self._shared.takes(run) else self._local

    def _dispatch(self, way: Way) -> None:
        """Send runs that wait on links that are idle."""
        while way.waiting and self._death is None and self._session.is_attached:
            link = self._idle_link(way)
            if link is None:
                return
            runs = [run for run in way.take() if not run.ended.is_set]
            if runs and runs[0].size_bytes > _LARGE_BYTES and way is self._local:
                self._pack_elsewhere(link, runs[0])
            else:
                try:
                    self._send(way, link, runs)
                except Exception as error:  # They wait no more: nobody else would end them.
                    for run in runs:
                        run.fail(nnrt_error_of(error, _COULD_NOT_SEND))
                    link.take_off()
                    self._close(link)

    def _idle_link(self, way: Way) -> Link | None:
        """Take an idle link of the loop's; None where none is to be had now."""
        while way.idle:
            link = way.idle.popleft()
            if not link.is_over and link.attachment == self._session.attachment:
                return link
            self._close(link)
        if way.has_room and way.opening < _MOST_OPENING:  # Else the next one is opened when that is done.
            self._open(way)
        elif isinstance(way, SharedWay):
            self._wake_at(way.late_at)
        return None

    def _send(self, way: Way, link: Link, runs: Sequence[Run]) -> None:
        """Pack runs, and send them on an idle link."""
        packed = []
        for run in runs:
            run.stamps.packing_ns = perf_counter_ns()
            try:
                run.packet = run.packet or way.pack(run)
            except Exception as error:
                self._could_not_pack(way, run, error)
            else:
                packed.append(run)
                link.put_on(run)
        if not packed:
            self._free(link)
            return
        link.sent_at = time.monotonic()
        try:
            link.send(packed)
        except OSError as error:
            self._send_elsewhere(link, error)
        except Exception as error:
            for run in packed:
                run.fail(run.given_up or nnrt_error_of(error, _COULD_NOT_SEND))
            link.take_off()
            self._free(link)

    def _pack_elsewhere(self, link: Link, run: Run) -> None:
        """Copy the inputs of a run in a thread of its own, and send it then."""
        assert self._local is not None
        way = self._local
        self._packing.add(run)

        def pack() -> None:
            run.stamps.packing_ns = perf_counter_ns()
            try:
                if not run.ended.is_set:
                    run.packet = way.pack(run)
            except Exception as error:
                self._could_not_pack(way, run, error)
                self._post(self._packed, link, None)
            else:
                self._post(self._packed, link, run)
            self._post(self._packing.discard, run)

        if not self._started(pack, "pack"):
            self._packing.discard(run)
            self._send(way, link, [run])

    def _packed(self, link: Link, run: Run | None) -> None:
        assert self._local is not None
        if run is None or run.ended.is_set:
            self._free(link)
        elif link.is_over or self._death is not None:
            self._close(link)
            self._arrive(run)
        else:
            self._send(self._local, link, [run])

    def _send_elsewhere(self, link: Link, error: Exception) -> None:
        """Send the runs over gRPC that were put on a link in vain."""
        _log.debug("runs go over gRPC: %s", error)
        runs = link.take_off()
        self._close(link)
        for run in runs:
            run.packet = None
            if run.given_up is not None:
                run.fail(run.given_up)
            elif not run.ended.is_set:
                self._arrive(run, self._remote)

    # ---- the loop's: links

    def _open(self, way: Way, wanted: Wanted | None = None) -> None:
        """Open a link, for the loop or for the thread that wants it, in a thread that may wait for it."""
        if wanted is not None and not way.has_room_for_threads:  # Others were first.
            wanted.end(None)
            return
        way.opening += 1

        def open_link() -> None:
            link: Link | None = None
            try:
                link = way.open()
            except _SHORTAGES as error:
                _log.debug("no link can be opened: %s", error)
            except BaseException:
                _log.exception("no link can be opened")
            self._post(self._opened, way, link, wanted)

        if not self._started(open_link, "link"):
            self._opened(way, None, wanted)

    def _opened(self, way: Way, link: Link | None, wanted: Wanted | None) -> None:
        way.opening -= 1
        if link is not None and (self._death is not None or link.is_over):
            link.end()
            link.close()
            link = None
        if link is not None:
            way.links.add(link)
        if wanted is not None:
            if link is not None:
                self._wake_at(time.monotonic() + _LOOK_AGAIN_S)
            wanted.end(link)
            if wanted.is_given_up:
                self._take_back(way, wanted)
        elif link is not None:
            self._take_over(link)
            way.idle.append(link)
        elif way is not self._remote and not any(one.is_loops for one in way.links):
            for run in way.waiting.take_all():
                run.packet = None
                self._arrive(run, self._remote)
        elif way.waiting:
            self._wake_at(time.monotonic() + TICK_S)
            return
        if self._death is not None:
            self._end_if_over()
        else:
            self._dispatch(way)

    def _take_back(self, way: Way, wanted: Wanted) -> None:
        """Have the loop use a link for which its thread waits no more."""
        link, wanted.link = wanted.link, None
        if link is not None:
            self._take_over(link)
            self._free(link)

    def _take_over(self, link: Link) -> None:
        """Read what comes on a link."""
        if not link.is_loops:
            link.is_loops = True
            if isinstance(link, LocalLink):
                self._loop.events.add_reader(link.fileno(), link.read_ready)

    def _take_over_left(self, link: Link) -> None:
        """Read the reply of a run that its thread has left; the link is closed then."""
        if not link.is_loops and not link.is_over:
            link.was_left = True
            self._take_over(link)
            if not link.under_way:
                self._free(link)

    def _free(self, link: Link) -> None:
        """Use a link for the next run."""
        way = self._way_with(link)
        if link.under_way or way is None:
            return
        if link.is_over or link.was_left or self._death is not None:
            self._close(link)
        elif link.is_loops and link not in way.idle:
            way.idle.append(link)
        self._dispatch(way)

    def _way_with(self, link: Link) -> Way | None:
        return next((way for way in self._ways if link in way.links), None)

    def _close_all(self, links: Sequence[Link]) -> None:
        for link in links:
            if not link.under_way:
                self._close(link)

    def _close(self, link: Link) -> None:
        """Close a link that carries no run."""
        link.is_over = True
        way = self._way_with(link)
        if way is None:
            return
        way.links.discard(link)
        if link in way.idle:
            way.idle.remove(link)
        if isinstance(link, LocalLink) and link.is_loops:
            self._loop.events.remove_reader(link.fileno())
        link.end()
        link.close()
        for run_id in (*link.former, *link.answered):  # The next packet would have told the daemon so.
            self.forget(run_id)
        if self._death is not None:
            self._end_if_over()

    def _lost(self, link: Link, broken: BrokenCall) -> None:
        link.is_over = True
        runs = link.take_off()
        self._close(link)
        for run in runs:
            if run.ended.is_set or self._death is not None:
                # One that has ended only tells so, if whoever ended it was left without memory for that.
                run.fail((self._death or OperationFailed("the link was lost")).copy())
            else:
                self._await(run, broken, link.attachment)
        for way in self._ways:
            self._dispatch(way)

    def _reattached(self) -> None:
        """Close the links of the former channel that carry nothing, and send what waits: the session goes on."""
        for way in self._ways:
            for link in list(way.links):
                if link.attachment != self._session.attachment:
                    link.is_over = True
                    if not link.under_way:
                        self._close(link)
            self._dispatch(way)

    # ---- the loop's: replies that are fetched

    def _await(self, run: Run, broken: BrokenCall | None, since: int) -> None:
        """Fetch the reply of a run in a thread that may wait: for a verdict, where its link was lost."""
        awaited = AwaitedRun(self._session, run, broken, since)
        self._awaited.add(awaited)
        run.link = awaited
        self._wake_at(run.deadline)
        self._to_fetch.append(awaited)
        self._fetch_next()

    def _fetch_next(self) -> None:
        fetching = len(self._awaited) - len(self._to_fetch)
        while self._to_fetch and fetching < self._most_fetches:
            awaited = self._to_fetch.popleft()
            fetching += 1

            def fetch(awaited: AwaitedRun = awaited) -> None:
                try:
                    awaited.fetch()
                finally:
                    self._post(self._fetched, awaited)

            if not self._started(fetch, "await"):
                self._awaited.discard(awaited)
                awaited.asked.fail(
                    ConnectionFailed("its reply can't be fetched: no thread is left", place=self._session.place)
                )

    def _fetched(self, awaited: AwaitedRun) -> None:
        self._awaited.discard(awaited)
        run = awaited.asked
        self.forget(run.id)  # Its reply is here; or it never arrived, and mustn't begin later.
        if awaited.never_arrived:  # It is sent as another one.
            run.id, run.link, run.packet = next(self._run_ids), None, None
            self._arrive(run, self._remote)
        self._fetch_next()
        if self._death is not None:
            self._end_if_over()

    def forget(self, run_id: int) -> None:
        """Let the daemon stop a run, or give up what it keeps of one whose reply is here."""
        if self._death is None:
            self._canceller.tell(run_id)

    # ---- the loop's: runs that end early

    def _wake_at(self, until: float) -> None:
        """Have `_supervise` called at that time, or sooner."""
        if until < self._wakes_at and until < math.inf:
            if self._timer is not None:
                self._timer.cancel()
            self._wakes_at = until
            self._timer = self._loop.events.call_later(max(until - time.monotonic(), 0.0), self._supervise)

    def _supervise(self) -> None:
        """End runs whose time is over, and links that nobody has any more."""
        now = time.monotonic()
        self._timer, self._wakes_at = None, math.inf
        nearest = math.inf
        for way in self._ways:
            way.reap(self._close)
            if any(not link.is_loops for link in way.links):
                nearest = min(nearest, now + _LOOK_AGAIN_S)
        nearest = min(nearest, self._unshare(now))
        for run in set(self._under_way()):
            if run.ended.is_set:  # Its link waits for the reply, but not for ever: it may be lost.
                self._stopping.setdefault(run, now + self._session.settings.verdict_timeout_s)
            until = self._stopping.get(run)
            if until is None:
                until = now if run.given_up is not None else run.deadline
                if isinstance(run.link, Link) and not run.link.is_loops:
                    until += TICK_S  # Its thread looks first.
            if until <= now:
                self._end_early(run, self._timed_out(run), is_left=True)
                until = self._stopping.get(run, math.inf)
            nearest = min(nearest, until)
            del run  # It keeps no tensors alive.
        for run in [run for run in self._stopping if run.carrying is None]:
            del self._stopping[run]
            run.fail(OperationFailed("the run was given up"))  # If nobody who has read its reply ends it.
        for way in self._ways:
            self._dispatch(way)
        if any(way.waiting for way in self._ways):
            nearest = min(nearest, now + TICK_S)
        self._wake_at(nearest)

    def _unshare(self, now: float) -> float:
        """Send runs each by itself that wait behind a packet that takes long; when it will have taken long."""
        shared, local = self._shared, self._local
        if shared is None or local is None or not shared.waiting:
            return math.inf
        if shared.late_at > now:
            return shared.late_at
        for run in shared.waiting.take_all():
            self._arrive(run, local)
        return math.inf

    def _under_way(self) -> Iterator[Run]:
        """All runs that have begun, and not ended, or that are still on a link."""
        for way in self._ways:
            yield from [run for link in list(way.links) for run in list(link.under_way.values())]
            yield from list(way.waiting)
        yield from list(self._packing)
        yield from list(self._stopping)
        yield from [awaited.asked for awaited in list(self._awaited)]
        yield from [one for _, arguments in list(self._messages) for one in arguments if isinstance(one, Run)]

    def _end_early(self, run: Run, reason: NnrtError, is_left: bool = False) -> None:
        link, now = run.carrying, time.monotonic()
        if link is None:  # It waits, or its reply is being read, or it was never sent.
            for way in self._ways:
                way.waiting.remove(run)
            run.fail(reason)
            return
        if is_left and isinstance(link, Link):
            self._take_over_left(link)
        if run not in self._stopping:
            run.give_up(reason)
            self._stopping[run] = now + self._session.settings.verdict_timeout_s
            self.forget(run.id)
            link.stop(run, reason)
            self._wake_at(self._stopping[run])
        elif self._stopping[run] <= now:  # The daemon doesn't say that it has ended, or never had it.
            self._stopping[run] = math.inf
            link.is_over = True
            link.end()
            run.fail(reason)

    def _expect_end(self, run_ids: set[int]) -> None:
        """The daemon has sent the replies of these runs, or never had them: they are about to come, if they do."""
        until = time.monotonic() + _ARRIVAL_S
        for run in [run for run in self._stopping if run.id in run_ids]:
            self._stopping[run] = min(self._stopping[run], until)
            self._wake_at(until)

    # ---- the end

    def _end(self, reason: NnrtError) -> None:
        """End all runs. One on a link ends with it: a reply that the daemon sent before it ended is still read."""
        self._death = reason
        self._canceller.stop()
        self._post(self._end_all, reason)

    def _end_all(self, reason: NnrtError) -> None:
        for way in self._ways:
            for run in way.waiting.take_all():
                run.fail(never_sent(reason))
            for link in list(way.links):
                link.is_over = True
                link.end()
                if not link.under_way:
                    self._close(link)
        for run in list(self._packing):
            run.fail(never_sent(reason))
        self._end_if_over()

    def _end_if_over(self) -> None:
        if not self._awaited and not any(way.links or way.opening for way in self._ways):
            if self._timer is not None:
                self._timer.cancel()
            self._over.set()

    def wait_ended(self, timeout_s: float) -> None:
        """Wait until every run of a session that is over has ended, but not in a thread that ends them."""
        if not self._loop.is_here and threading.current_thread() not in self._remote.readers:
            until = time.monotonic() + timeout_s
            self._over.wait(timeout_s)
            for reader in list(self._remote.readers):
                reader.join(max(until - time.monotonic(), 0.0))

    def _started(self, work: Callable[[], None], what: str) -> bool:
        """Start a thread, for what waits; false where there is none to be had."""
        try:
            threading.Thread(target=work, name=f"nnrt-{what} {self._session.address}", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            _log.debug("no thread can be started: %s", error)
            return False
        return True
