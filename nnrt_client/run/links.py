"""The links of one way to the daemon: each is a thread's own, or the loop's."""

import logging
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Protocol

from nnrt_client.run.link import Link, LocalLink
from nnrt_client.run.session_runs import SessionRuns
from nnrt_client.session.broken_call import BrokenCall
from nnrt_client.session.errands import begin
from nnrt_client.session.io_loop import io_loop
from nnrt_client.session.latch import Latch
from nnrt_hdi.errors import NnrtError

_log = logging.getLogger(__name__)

# Links that are opened for the loop at a time: the daemon has a thread for each that comes.
_MOST_OPENING = 2

# So often the loop looks after links of threads: they may have ended, or have been interrupted.
LOOK_AGAIN_S = 1.0

# Such as no descriptor left, no thread, or no memory.
SHORTAGES = (NnrtError, RuntimeError, MemoryError, OSError)


class Opening:
    """A link that is being opened: for a thread, which waits for it, or for the loop."""

    def __init__(self, *, is_loops: bool) -> None:
        self.is_loops = is_loops
        self.ended = Latch()
        self.link: Link | None = None
        # Whether the thread waits no more.
        self.is_given_up = False

    def end(self, link: Link | None = None) -> None:
        """Give the thread its link; None where none is to be had."""
        self.link = link
        self.ended.set()


class Sender(Protocol):
    """Who sends runs on links. All is called in the loop, but for `connect`."""

    def connect(self) -> Link:
        """Open a link. Raises NnrtError, RuntimeError or OSError where none is to be had."""

    def dispatch(self) -> None:
        """Send runs that wait: there may be an idle link for them now."""

    def not_opened(self) -> None:
        """No link could be opened."""


class _Holder:
    """The links of one thread. It goes with the thread."""

    __slots__ = ("__weakref__", "links")

    def __init__(self) -> None:
        self.links: list[Link] = []


class _Reference(weakref.ref[_Holder]):
    """Knows the links of a thread that has gone."""

    links: list[Link]


class Links:
    """Opens links, hands them out and closes them. The loop's, but for what threads call and links tell."""

    def __init__(self, sender: Sender, runs: SessionRuns, limit: int) -> None:
        """So many may be open; half of them, at most, are those of threads."""
        self._sender = sender
        self._runs = runs
        self.limit = limit
        self.all: set[Link] = set()
        # Of the loop's those that carry nothing.
        self._idle: deque[Link] = deque()
        self._opening: set[Opening] = set()
        self._here = threading.local()
        self._holders: dict[int, _Reference] = {}
        # Those whose threads have gone. Python drops what a signal handler raises in a function that is called when an
        # object goes, so what is called then is no Python code.
        self._gone: deque[weakref.ref[_Holder]] = deque()

    @property
    def are_there(self) -> bool:
        """True where there are links, or will be."""
        return bool(self.all or self._opening)

    # ---- for the thread that calls this

    def idle_of_thread(self, attachment: int) -> Link | None:
        """Give an idle link of this thread's own that was opened at that attachment of the session."""
        try:
            mine: list[Link] = self._here.holder.links
        except AttributeError:
            holder = _Holder()
            reference = _Reference(holder, self._gone.append)
            mine = reference.links = holder.links
            self._holders[id(reference)] = reference
            self._here.holder = holder
        for link in mine:
            if not (link.under_way or link.is_over or link.is_loops) and link.attachment == attachment:
                return link
        return None

    def open_for_thread(self, deadline: float) -> Link | None:
        """Have the loop open a link for this thread, in place of those that it can't use any more. None where none is
        to be had by then."""
        mine: list[Link] = self._here.holder.links
        former = [link for link in mine if not link.under_way or link.is_over or link.is_loops]
        if former:
            mine[:] = [link for link in mine if link not in former]
            self._runs.post(self._close_idle, former)
        if not self._has_room_for_thread:
            return None
        opening = Opening(is_loops=False)
        try:
            self._runs.post(self._open, opening)
            if not opening.ended.wait(None if deadline == math.inf else max(deadline - time.monotonic(), 0.0)):
                opening.is_given_up = True
                self._runs.post(self._take_back, opening)
                return None
            if opening.link is not None:
                mine.append(opening.link)
        except BaseException:
            opening.is_given_up = True
            self._runs.post(self._take_back, opening)
            raise
        return opening.link

    # ---- the loop's

    def take_idle(self, attachment: int) -> Link | None:
        """Take an idle link of the loop's. Where there is none, one more is opened, if there is room."""
        while self._idle:
            link = self._idle.popleft()
            if not link.is_over and link.attachment == attachment:
                return link
            self.close(link)
        if len(self.all) + len(self._opening) < self.limit and len(self._opening) < _MOST_OPENING:
            self._open(Opening(is_loops=True))
        return None

    @property
    def _has_room_for_thread(self) -> bool:
        return 2 * (len(self.all) + len(self._opening) + 1) <= self.limit

    def _open(self, opening: Opening) -> None:
        """Open a link in a thread that may wait for it."""
        if not (opening.is_loops or self._has_room_for_thread):  # Others were first.
            opening.end()
            return

        if begin(self._connected, partial(self._runs.post, self._opened, opening)):
            self._opening.add(opening)
        else:
            self._opened(opening, None)

    def _connected(self) -> Link | None:
        """Connect, in a thread that may wait for it."""
        try:
            return self._sender.connect()
        except SHORTAGES as error:
            _log.debug("no link can be opened: %s", error)
        except BaseException:
            _log.exception("no link can be opened")
        return None

    def _opened(self, opening: Opening, link: Link | None) -> None:
        self._opening.discard(opening)
        if link is not None and (self._runs.death is not None or link.is_over):
            link.end()
            link.close()
            link = None
        if link is not None:
            self.all.add(link)
        if not opening.is_loops:
            opening.end(link)
            if opening.is_given_up:
                self._take_back(opening)
        elif link is not None:
            self._take_over(link)
            self.free(link)
        if self._runs.death is not None:
            self._runs.end_if_over()
        elif link is None and opening.is_loops:
            self._sender.not_opened()
        else:
            self._sender.dispatch()
            self._runs.wake_at(time.monotonic() + LOOK_AGAIN_S)

    def _take_back(self, opening: Opening) -> None:
        """Have the loop use a link for which its thread waits no more."""
        link, opening.link = opening.link, None
        if link is not None:
            self._take_over(link)
            self.freed(link)

    def _take_over(self, link: Link) -> None:
        """Read what comes on a link."""
        if not link.is_loops:
            if isinstance(link, LocalLink):
                io_loop().events.add_reader(link.fileno(), link.read_ready)
            link.is_loops = True

    def free(self, link: Link) -> None:
        """Use a link for the next run, unless it still carries one."""
        if link.under_way or link not in self.all:
            return
        if link.is_over or link.was_left or self._runs.death is not None:
            self.close(link)
        elif link.is_loops and link not in self._idle:
            self._idle.append(link)

    def close(self, link: Link) -> None:
        """Close a link that carries no run. Idempotent."""
        link.is_over = True
        if link not in self.all:
            return
        if link in self._idle:
            self._idle.remove(link)
        if isinstance(link, LocalLink) and link.is_loops:
            io_loop().events.remove_reader(link.fileno())
        link.end()
        link.close()
        self.all.discard(link)
        for run_id in (*link.former, *link.answered):  # The next packet would have told the daemon so.
            self._runs.forget(run_id)
        if self._runs.death is not None:
            self._runs.end_if_over()

    def _close_idle(self, links: Iterable[Link]) -> None:
        for link in links:
            if not link.under_way:
                self.close(link)

    def reap(self) -> None:
        """Close the links of threads that have ended."""
        while self._gone:
            reference = self._holders.pop(id(self._gone.popleft()), None)
            if reference is not None:
                self._close_idle([link for link in reference.links if not link.is_loops])

    def close_former(self, attachment: int) -> None:
        """Use no links any more that are of another attachment."""
        former = [link for link in self.all if link.attachment != attachment]
        for link in former:
            link.is_over = True
        self._close_idle(former)

    def end_all(self) -> None:
        """End all links. Those that carry runs are closed once they have been read to their ends."""
        for link in list(self.all):
            link.is_over = True
            link.end()
            if not link.under_way:
                self.close(link)

    # ---- what links tell, in any thread

    def freed(self, link: Link) -> None:
        """Use a link of the loop's again, which carries no run any more."""
        if not io_loop().is_here:
            self._runs.post(self.freed, link)
            return
        self.free(link)
        self._sender.dispatch()

    def leave(self, link: Link) -> None:
        """Have the loop read the reply of a run that its thread has left. The link is closed then."""
        if not io_loop().is_here:
            self._runs.post(self.leave, link)
        elif link in self.all and not (link.is_loops or link.is_lost):
            link.was_left = True
            self._take_over(link)
            self.freed(link)

    def lost(self, link: Link, broken: BrokenCall) -> None:
        """Give up a link that is over. The replies of its runs may be had in another way."""
        link.is_over = link.is_lost = True
        if not io_loop().is_here:
            self._runs.post(self.lost, link, broken)
            return
        for run in list(link.under_way.values()):
            self._runs.fetch_lost(run, broken, link.attachment)
            link.under_way.pop(run.id, None)
        self.close(link)
        self._sender.dispatch()
