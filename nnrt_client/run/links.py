"""Links of one Way to the daemon. Each link belongs to a thread or to the loop."""

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
from nnrt_client.session.errands import start_in_worker
from nnrt_client.session.io_loop import io_loop
from nnrt_client.session.latch import Latch
from nnrt_hdi.errors import NnrtError

_log = logging.getLogger(__name__)

# Number of links that the loop opens at a time; the daemon uses a thread for each.
_MOST_OPENING = 2

# Interval at which the loop checks links of threads, because a thread may have ended or was interrupted.
LOOK_AGAIN_S = 1.0

# Errors that mean that no descriptor, thread or memory is left.
SHORTAGES = (NnrtError, RuntimeError, MemoryError, OSError)


class Opening:
    """State of a link that is being opened, for a waiting thread or for the loop."""

    def __init__(self, *, is_loops: bool) -> None:
        self.is_loops = is_loops
        self.ended = Latch()
        self.link: Link | None = None
        # Whether the thread has stopped waiting.
        self.is_given_up = False

    def end(self, link: Link | None = None) -> None:
        """Pass the link, or None if it could not be opened, to the waiting thread."""
        self.link = link
        self.ended.set()


class Sender(Protocol):
    """Part of a Way that `Links` uses. Only `connect` is called outside the loop."""

    def connect(self) -> Link:
        """Open a link, or raise NnrtError, RuntimeError or OSError."""

    def dispatch(self) -> None:
        """Send waiting runs on idle links."""

    def not_opened(self) -> None:
        """Handle that no link could be opened."""


class _Holder:
    """Links of one thread. Python frees this thread-local object when the thread ends."""

    __slots__ = ("__weakref__", "links")

    def __init__(self) -> None:
        self.links: list[Link] = []


class _Reference(weakref.ref[_Holder]):
    """Weak reference to a `_Holder` that keeps the links after their thread has ended."""

    links: list[Link]


class Links:
    """Links of one Way: it opens them, hands them out, and closes them.

    Only the loop calls this, except the methods for threads and links below.
    """

    def __init__(self, sender: Sender, runs: SessionRuns, limit: int) -> None:
        """Create it. At most `limit` links are open, of which at most half are opened for threads."""
        self._sender = sender
        self._runs = runs
        self.limit = limit
        self.all: set[Link] = set()
        # The loop's links that carry no run.
        self._idle: deque[Link] = deque()
        self._opening: set[Opening] = set()
        self._here = threading.local()
        self._holders: dict[int, _Reference] = {}
        # References whose threads have ended. Python drops exceptions that a signal handler raises in a finalizer, so
        # the finalizer runs no Python code: it is the `append` of this deque.
        self._gone: deque[weakref.ref[_Holder]] = deque()

    @property
    def has_any(self) -> bool:
        """True if a link is open or is being opened."""
        return bool(self.all or self._opening)

    # ---- for the calling thread

    def idle_of_thread(self, attachment: int) -> Link | None:
        """Return an idle link of the calling thread, opened at this attachment of the session, or None."""
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
        """Ask the loop to open a link for the calling thread, and to close links that the thread can't use any more.

        Returns:
            The link, or None if none could be opened before the deadline.
        """
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

    # ---- in the loop

    def take_idle(self, attachment: int) -> Link | None:
        """Return an idle link of the loop. If there is none, return None and start to open one within the limit."""
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
        """Start to open a link in a thread that may block."""
        if not (opening.is_loops or self._has_room_for_thread):  # Other threads have taken the last ones.
            opening.end()
            return

        if start_in_worker(self._connected, partial(self._runs.post, self._opened, opening)):
            self._opening.add(opening)
        else:
            self._opened(opening, None)

    def _connected(self) -> Link | None:
        """Connect, in a thread that may block. Return None if that fails."""
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
        """Pass a link to the loop because its thread has stopped waiting for it."""
        link, opening.link = opening.link, None
        if link is not None:
            self._take_over(link)
            self.freed(link)

    def _take_over(self, link: Link) -> None:
        """Make the loop the owner of a link. The loop reads it from now on."""
        if not link.is_loops:
            if isinstance(link, LocalLink):
                io_loop().events.add_reader(link.fileno(), link.read_ready)
            link.is_loops = True

    def free(self, link: Link) -> None:
        """Make a link that carries no run idle, or close it if it can't be used any more."""
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
        for run_id in (*link.former, *link.answered):  # The next packet would have acknowledged their replies.
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
        """Close the links of earlier attachments, those with runs once the replies have come."""
        former = [link for link in self.all if link.attachment != attachment]
        for link in former:
            link.is_over = True
        self._close_idle(former)

    def end_all(self) -> None:
        """End all links. A link that carries runs is closed when it has been read to the end."""
        for link in list(self.all):
            link.is_over = True
            link.end()
            if not link.under_way:
                self.close(link)

    # ---- called by links, in any thread

    def freed(self, link: Link) -> None:
        """Make a link of the loop available again, because it carries no run any more."""
        if not io_loop().is_here:
            self._runs.post(self.freed, link)
            return
        self.free(link)
        self._sender.dispatch()

    def leave(self, link: Link) -> None:
        """Let the loop read the reply of a run whose thread has stopped waiting, then close the link."""
        if not io_loop().is_here:
            self._runs.post(self.leave, link)
        elif link in self.all and not (link.is_loops or link.is_lost):
            link.was_left = True
            self._take_over(link)
            self.freed(link)

    def lost(self, link: Link, broken: BrokenCall) -> None:
        """Close a broken link, and fetch the replies of its runs by AwaitRun."""
        link.is_over = link.is_lost = True
        if not io_loop().is_here:
            self._runs.post(self.lost, link, broken)
            return
        for run in list(link.under_way.values()):
            self._runs.fetch_lost(run, broken, link.attachment)
            link.under_way.pop(run.id, None)
        self.close(link)
        self._sender.dispatch()
