"""The ways of a session to its daemon, the local socket and gRPC: their links, and the runs that wait for one."""

import math
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from nnrt_client.run.link import Link, LinkOwner, LocalLink, RemoteLink
from nnrt_client.run.packet import Packet
from nnrt_client.run.run import Run
from nnrt_client.run.waiting_runs import WaitingRuns
from nnrt_client.session.latch import Latch
from nnrt_client.session.local_socket import LocalSocket
from nnrt_client.session.session import Session
from nnrt_hdi.limits import LOCAL_PACKET_BYTES, MAX_FRAMES

# A packet is full with that for which the daemon lets one client keep the others waiting.
_PACKET_NS = 200_000
# Runs that are longer have more to gain by going at once, each on its own link.
_MOST_NS = _PACKET_NS // 2
_MOST_BYTES = 8 * 1024
# A packet that takes longer holds up no run that waits for the next one.
_LATE_S = 0.005
_ROOM_BYTES = LOCAL_PACKET_BYTES - _MOST_BYTES


class Wanted:
    """A link that a thread waits for."""

    def __init__(self) -> None:
        self.ended = Latch()
        self.link: Link | None = None
        # Whether the thread waits no more.
        self.is_given_up = False

    def end(self, link: Link | None) -> None:
        """Give the thread its link; None where none is to be had."""
        self.link = link
        self.ended.set()


class _Holder:
    """The links of one thread. It goes with the thread."""

    __slots__ = ("__weakref__", "links")

    def __init__(self) -> None:
        self.links: list[Link] = []


class _Reference(weakref.ref[_Holder]):
    """Knows the links of a thread that has gone."""

    links: list[Link]


class Way(ABC):
    """One way. Its state is the loop's, but for `own_links`."""

    def __init__(self, session: Session, dispatcher: LinkOwner, limit: int) -> None:
        """So many links may be open; half of them, at most, are those of threads."""
        self._session = session
        self._dispatcher = dispatcher
        self._limit = limit
        self.links: set[Link] = set()
        self.opening = 0
        # Of the loop's links those that carry nothing.
        self.idle: deque[Link] = deque()
        self.waiting: WaitingRuns[Run] = WaitingRuns()
        self._here = threading.local()
        self._holders: dict[int, _Reference] = {}
        # Those whose threads have gone. Python drops what a signal handler raises in a function that is called when an
        # object goes, so what is called then is no Python code.
        self._gone: deque[weakref.ref[_Holder]] = deque()

    @abstractmethod
    def open(self) -> Link:
        """Open a link. Raises NnrtError, RuntimeError or OSError where none is to be had."""

    @abstractmethod
    def pack(self, run: Run) -> Packet:
        """Make a run ready to be sent: copy inputs and share memory where that is needed. Raises NnrtError."""

    @property
    def has_room(self) -> bool:
        """True where the loop may open one more link."""
        return len(self.links) + self.opening < self._limit

    @property
    def has_room_for_threads(self) -> bool:
        """True where one more link may be a thread's."""
        return 2 * (len(self.links) + self.opening + 1) <= self._limit

    def own_links(self) -> list[Link]:
        """The links of the thread that calls this."""
        try:
            return self._here.holder.links  # type: ignore[no-any-return]
        except AttributeError:
            holder = _Holder()
            reference = _Reference(holder, self._gone.append)
            reference.links = holder.links
            self._holders[id(reference)] = reference
            self._here.holder = holder
            return holder.links

    def reap(self, close: Callable[[Link], object]) -> None:
        """Close the links of threads that have ended."""
        while self._gone:
            reference = self._holders.pop(id(self._gone.popleft()), None)
            for link in reference.links if reference is not None else ():
                if not link.under_way and not link.is_loops:
                    close(link)

    def take(self) -> list[Run]:
        """Take the run whose turn it is."""
        return [self.waiting.take()]

    def forget(self) -> None:
        """Have no links and no runs any more, in a child of a fork."""
        self.waiting.take_all()
        self.idle.clear()
        self.links.clear()
        self._here = threading.local()


class LocalWay(Way):
    """Connections of the local socket, one run at a time on each."""

    def __init__(self, session: Session, dispatcher: LinkOwner, socket: LocalSocket, limit: int) -> None:
        super().__init__(session, dispatcher, limit)
        self._socket = socket

    def open(self) -> Link:
        return LocalLink(self._dispatcher, self._session)

    def pack(self, run: Run) -> Packet:
        return Packet(run.descriptions.local.of(run), run, self._socket)


class SharedWay(LocalWay):
    """A connection of the local socket for quick runs that nobody waits for, as many in a packet as there are."""

    @property
    def late_at(self) -> float:
        """When nothing is to wait any more for the packet that is under way; never where there is none."""
        return min((link.sent_at + _LATE_S for link in self.links if link.under_way), default=math.inf)

    def takes(self, run: Run) -> bool:
        """Tell if a run is short enough to go with others."""
        if run.tensors is not None or run.fields:
            return False
        found = run.descriptions.local.of(run)
        is_quick = found.is_answered and found.busy_ns <= _MOST_NS and found.frame_bytes <= _MOST_BYTES
        return is_quick and found.is_inline and not found.elsewhere

    def take(self) -> list[Run]:
        runs, left_bytes, left_ns = list[Run](), _ROOM_BYTES, _PACKET_NS
        while self.waiting and len(runs) < MAX_FRAMES and left_bytes > 0 and left_ns > 0:
            run = self.waiting.take()
            runs.append(run)
            if run.ended.is_set:
                continue
            description = run.descriptions.local.of(run)
            left_bytes -= description.frame_bytes
            left_ns -= description.busy_ns
        return runs


class RemoteWay(Way):
    """Streams of gRPC, one run at a time on each."""

    def __init__(self, session: Session, dispatcher: LinkOwner, limit: int) -> None:
        super().__init__(session, dispatcher, limit)
        # The threads that read them.
        self.readers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

    def open(self) -> Link:
        link = RemoteLink(self._dispatcher, self._session)
        self.readers.add(link.reader)
        return link

    def pack(self, run: Run) -> Packet:
        return Packet(run.descriptions.remote.of(run), run)
