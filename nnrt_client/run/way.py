"""Ways from a session to its daemon (local socket, gRPC): each has links, and a queue of runs that wait for one."""

import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter_ns

from nnrt_client.run.failures import nnrt_error_of
from nnrt_client.run.link import TICK_S, Link, LocalLink, RemoteLink
from nnrt_client.run.links import LOOK_AGAIN_S, SHORTAGES, Links
from nnrt_client.run.packet import Packet
from nnrt_client.run.result import never_sent
from nnrt_client.run.run import Run
from nnrt_client.run.session_runs import SessionRuns
from nnrt_client.run.waiting_runs import WaitingRuns
from nnrt_client.session.errands import start_in_worker
from nnrt_client.session.local_socket import LocalSocket, WaitsForDaemon
from nnrt_client.session.session import Session
from nnrt_hdi.errors import NnrtError, OutOfMemory
from nnrt_hdi.limits import LOCAL_PACKET_BYTES, MAX_FRAMES
from nnrt_hdi.signals import raised_by_handler

_log = logging.getLogger(__name__)

# Inputs larger than this are copied in another thread, so that the loop doesn't wait.
_LARGE_BYTES = 1 << 20
# Computing time of a full packet: the time for which the daemon lets one client keep the others waiting.
_PACKET_NS = 200_000
# Limits of runs that share a packet. Longer or larger runs are quicker on a link of their own.
_MOST_NS = _PACKET_NS // 2
_MOST_BYTES = 8 * 1024
# The daemon works on one packet while the client reads the replies of another: with eight threads of 16 runs each,
# 22,000 runs per second in place of 14,000 with one link.
_SHARED_LINKS = 2
# Runs wait for the next packet only while the packets under way take no longer than this.
_LATE_S = 0.005
_ROOM_BYTES = LOCAL_PACKET_BYTES - _MOST_BYTES

COULD_NOT_SEND = "the run could not be sent"


class Way(ABC):
    """One way to the daemon, by local socket or gRPC: its links, and the runs that wait for one.

    Only the loop calls this, except `connect`, `pack`, `send_here` and what links call.
    """

    # Whether runs that fail here can't be sent another way.
    _is_last = False

    def __init__(self, session: Session, runs: SessionRuns, limit: int) -> None:
        """Create a way; at most `limit` links are open."""
        self._session = session
        self._runs = runs
        self.links = Links(self, runs, limit)
        self._waiting: WaitingRuns[Run] = WaitingRuns()

    @abstractmethod
    def connect(self) -> Link:
        """Open a link, or raise NnrtError, RuntimeError or OSError."""

    @abstractmethod
    def pack(self, run: Run) -> Packet:
        """Make the packet of a run: copy inputs and share memory where needed. Raise NnrtError if that fails."""

    def send_here(self, link: Link, run: Run) -> bool:
        """Send a run on an idle link of the calling thread. Return False if it is sent another way or has ended."""
        run.stamps.packing_ns = perf_counter_ns()
        try:  # Not a call of `_is_packed`, which would add a Python frame to every small run.
            run.packet = self.pack(run)
        except Exception as error:
            if raised_by_handler(error):
                raise
            self._could_not_pack(run, error)
            return False
        link.put_on(run)
        try:
            if link.is_over or run.ended.is_set:  # The session or the executor was closed meanwhile.
                raise ConnectionError("the link is closed, or the run has ended")
            link.send((run,))
        except Exception as error:  # No memory, or the daemon is gone. The daemon didn't get the run.
            if raised_by_handler(error):
                raise
            if not isinstance(error, OSError):  # Else the run is sent another way.
                run.fail(run.given_up or nnrt_error_of(error, COULD_NOT_SEND))
            self._runs.post(self._send_elsewhere, link, error)
            return False
        return True

    # ---- in the loop

    def add(self, run: Run) -> None:
        """Add a run to those that wait for a link. `dispatch` sends them in turn."""
        self._waiting.append(run)

    def dispatch(self) -> None:
        """Send waiting runs on idle links."""
        session = self._session
        while self._waiting and self._runs.death is None and session.is_attached:
            link = self.links.take_idle(session.attachment)
            if link is None:
                self._wait_for_link()
                return
            runs: list[Run] = []
            try:
                self._take(runs)
                self._send(link, [run for run in runs if not run.ended.is_set])
            except Exception as error:  # The runs have left the queue, so nothing else would end them.
                for run in runs:
                    run.fail(nnrt_error_of(error, COULD_NOT_SEND))
                link.take_off()
                self.links.close(link)

    def _take(self, runs: list[Run]) -> None:
        """Move the runs of the next packet from the queue into `runs`: here, one run."""
        runs.append(self._waiting.take())

    def _wait_for_link(self) -> None:
        """Prepare for runs that wait for a link: here, do nothing, because links call when they become free."""

    def _send(self, link: Link, runs: Sequence[Run]) -> None:
        """Pack runs and send them on an idle link. If none can be packed, make the link idle again."""
        packed = []
        for run in runs:
            if run.packet is not None or self._is_packed(run):
                packed.append(run)
                link.put_on(run)
        if not packed:
            self.links.free(link)
            return
        link.sent_at = time.monotonic()
        try:
            link.send(packed)
        except OSError as error:
            self._send_elsewhere(link, error)
        except Exception as error:
            for run in packed:
                run.fail(run.given_up or nnrt_error_of(error, COULD_NOT_SEND))
            link.take_off()
            self.links.free(link)

    def _is_packed(self, run: Run) -> bool:
        """Pack a run, in a thread that gets no signals.

        Returns:
            False if the run is sent another way or has ended.

        Raises:
            WaitsForDaemon: Packing would wait for the daemon, which the loop must not do.
        """
        if run.ended.is_set:
            return False
        run.stamps.packing_ns = perf_counter_ns()
        try:
            run.packet = self.pack(run)
        except WaitsForDaemon:
            raise
        except Exception as error:
            self._could_not_pack(run, error)
            return False
        return True

    def _could_not_pack(self, run: Run, error: Exception) -> None:
        if not self._is_last and isinstance(error, SHORTAGES) and run.given_up is None:
            _log.debug("a run goes over gRPC: %s", error)
            self._runs.post(self._runs.send_over_grpc, run)
        else:
            # A run that was cancelled meanwhile has no inputs, so packing it fails.
            run.fail(run.given_up or nnrt_error_of(error, COULD_NOT_SEND))

    def _send_elsewhere(self, link: Link, error: Exception) -> None:
        """Close a link that failed, and send its runs over gRPC."""
        _log.debug("runs go over gRPC: %s", error)
        for run in list(link.under_way.values()):
            run.packet = run.link = None
            if run.given_up is not None:
                run.fail(run.given_up)
            elif not run.ended.is_set:
                self._runs.send_over_grpc(run)
            link.under_way.pop(run.id, None)
        self.links.close(link)

    def remove(self, run: Run) -> None:
        """Remove a run from the queue, if it is there."""
        self._waiting.remove(run)

    def under_way(self) -> Iterator[Run]:
        """Yield the runs that wait or are on a link, including those that have ended."""
        for link in list(self.links.all):
            yield from list(link.under_way.values())
        yield from list(self._waiting)

    def look_after(self, now: float) -> float:
        """Make the periodic checks: close links of threads that have ended, and send waiting runs.

        Returns:
            When to call this again.
        """
        self.links.reap()
        self.dispatch()
        if self._waiting:
            return now + TICK_S
        return now + LOOK_AGAIN_S if any(not link.is_loops for link in self.links.all) else math.inf

    def end(self, reason: NnrtError) -> None:
        """Fail the waiting runs and end the links, because the session has ended."""
        for run in self._waiting.drain():
            run.fail(never_sent(reason))
        self.links.end_all()

    def forget(self) -> None:
        """Forget all links and runs, in a forked child."""
        self._waiting = WaitingRuns()
        self.links = Links(self, self._runs, self.links.limit)

    def not_opened(self) -> None:
        """Handle that no link could be opened: if no other one is open, send waiting runs over gRPC."""
        if self._is_last or any(link.is_loops for link in self.links.all):
            self._runs.wake_at(time.monotonic() + TICK_S)
            return
        for run in self._waiting.drain():
            run.packet = None
            self._runs.send_over_grpc(run)


class LocalWay(Way):
    """Way over connections of the local socket, each with one run at a time."""

    def __init__(self, session: Session, runs: SessionRuns, socket: LocalSocket, limit: int) -> None:
        super().__init__(session, runs, limit)
        self._socket = socket
        # Runs whose large inputs are being copied in another thread.
        self._packing: set[Run] = set()

    def connect(self) -> Link:
        return LocalLink(self.links, self._runs, self._session)

    def pack(self, run: Run) -> Packet:
        return Packet(run.descriptions.local.describe(run), run, self._socket)

    def _send(self, link: Link, runs: Sequence[Run]) -> None:
        try:
            if len(runs) == 1 and runs[0].packet is None and runs[0].size_bytes > _LARGE_BYTES:
                raise WaitsForDaemon
            super()._send(link, runs)
        except WaitsForDaemon:  # Runs that share a packet never raise this.
            self._pack_elsewhere(link, runs[0])

    def _pack_elsewhere(self, link: Link, run: Run) -> None:
        """Copy the inputs of a run in another thread, then send the run."""
        if start_in_worker(partial(self._is_packed, run), partial(self._runs.post, self._packed, link, run)):
            self._packing.add(run)
            return
        try:
            super()._send(link, [run])
        except WaitsForDaemon:
            self._could_not_pack(run, OutOfMemory("no thread is left that could share memory with the daemon"))
            self.links.free(link)

    def _packed(self, link: Link, run: Run, is_packed: bool) -> None:
        if not is_packed or run.ended.is_set:
            self.links.freed(link)
        elif link.is_over or self._runs.death is not None:
            self.links.close(link)
            self._runs.place(run)
        else:
            self._send(link, [run])
            self.dispatch()
        self._packing.discard(run)

    def under_way(self) -> Iterator[Run]:
        yield from super().under_way()
        yield from list(self._packing)

    def end(self, reason: NnrtError) -> None:
        super().end(reason)
        for run in list(self._packing):
            run.fail(never_sent(reason))


class SharedWay(LocalWay):
    """Way over connections of the local socket for quick submitted runs, which share packets."""

    def __init__(self, session: Session, runs: SessionRuns, socket: LocalSocket) -> None:
        super().__init__(session, runs, socket, _SHARED_LINKS)

    @property
    def late_at(self) -> float:
        """Time after which waiting runs don't wait for the packets under way; infinite if a link is idle."""
        late_at = 0.0
        for link in self.links.all:
            if not link.under_way:
                return math.inf
            late_at = max(late_at, link.sent_at + _LATE_S)
        return late_at or math.inf

    def takes(self, run: Run) -> bool:
        """Return whether a run is quick and small enough to share a packet."""
        if run.tensors is not None or run.fields:
            return False
        run.description = found = run.descriptions.local.describe(run)
        is_quick = found.is_answered and found.busy_ns <= _MOST_NS and found.frame_bytes <= _MOST_BYTES
        return is_quick and found.is_inline and not found.elsewhere

    def _take(self, runs: list[Run]) -> None:
        left_bytes, left_ns = _ROOM_BYTES, _PACKET_NS
        while self._waiting and len(runs) < MAX_FRAMES and left_bytes > 0 and left_ns > 0:
            run = self._waiting.take()
            runs.append(run)
            if run.ended.is_set:
                continue
            description = run.description
            left_bytes -= description.frame_bytes
            left_ns -= description.busy_ns

    def _wait_for_link(self) -> None:
        self._runs.wake_at(self.late_at)

    def pack(self, run: Run) -> Packet:
        return Packet(run.description, run, self._socket)

    def look_after(self, now: float) -> float:
        if self._waiting and self.late_at <= now:  # The packets take too long: send each run alone, on another link.
            for run in self._waiting.drain():
                self._runs.place(run)
        again = super().look_after(now)
        return min(again, self.late_at) if self._waiting else again


class RemoteWay(Way):
    """Way over gRPC streams, each with one run at a time."""

    _is_last = True

    def __init__(self, session: Session, runs: SessionRuns, limit: int) -> None:
        super().__init__(session, runs, limit)
        # The threads that read the streams; some may have ended.
        self.readers: list[threading.Thread] = []

    def connect(self) -> Link:
        link = RemoteLink(self.links, self._runs, self._session)
        for ended in [reader for reader in self.readers if not reader.is_alive()]:
            with suppress(ValueError):  # Another thread removed it.
                self.readers.remove(ended)
        self.readers.append(link.reader)
        return link

    def pack(self, run: Run) -> Packet:
        return Packet(run.descriptions.remote.describe(run), run)
