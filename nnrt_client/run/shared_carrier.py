"""Runs that wait for a stream anyway, several in a packet of the local socket."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING

from nnrt_client.run.carrier import Lane
from nnrt_client.run.descriptions import Description
from nnrt_client.run.local_carrier import ANSWERS_NONE, AT_ONCE, BROKEN, ConnectionStream
from nnrt_client.run.packet import Packet
from nnrt_client.run.reply import Reply, replies_in
from nnrt_client.run.reply_reader import ReplyReader
from nnrt_client.run.run import Run, told
from nnrt_client.session.local_socket import LocalConnection
from nnrt_client.session.session import Session
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.limits import LOCAL_PACKET_BYTES, MAX_FRAMES

if TYPE_CHECKING:
    from nnrt_client.run.queue import RunQueue

_log = logging.getLogger(__name__)

# A packet is full with that for which the daemon lets one client keep the others waiting.
_PACKET_NS = 200_000
# Runs that are longer have more to gain by going at once, each on its own stream.
_MOST_NS = _PACKET_NS // 2
_MOST_BYTES = 8 * 1024
# A packet that takes longer holds up no run that waits for the next one.
LATE_S = 0.005
_ROOM_BYTES = LOCAL_PACKET_BYTES - _MOST_BYTES

_COULD_NOT_READ = "the reply could not be read"

# Ends a run with the reply that has come.
Finish = Callable[[], None]


def quick_description(run: Run) -> Description | None:
    """The description of a run that is short enough to go with others; None for another one."""
    if run.tensors is not None or run.fields:
        return None
    found = run.signature.descriptions.local.of(run)
    is_quick = found.is_answered and found.busy_ns <= _MOST_NS and found.frame_bytes <= _MOST_BYTES
    return found if is_quick and found.is_inline and not found.elsewhere else None


class Room:
    """Says whether a packet has room for one more run."""

    def __init__(self) -> None:
        self._runs, self._bytes, self._ns = MAX_FRAMES, _ROOM_BYTES, _PACKET_NS

    def is_left_after(self, run: Run) -> bool:
        """Take a run in; whether there is room for another one."""
        packet: Packet | None = run.packet
        self._runs -= 1
        if packet is not None:  # Else it has ended.
            self._bytes -= packet.description.frame_bytes
            self._ns -= packet.description.busy_ns
        return self._runs > 0 and self._bytes > 0 and self._ns > 0


class SharedCarrier:
    """Opens connections of the local socket for runs that share packets. See `Carrier`."""

    is_read_by_callers = False

    def __init__(self, session: Session, runs: "RunQueue", reader: ReplyReader) -> None:
        """The reader is another carrier's."""
        self._session = session
        self._runs = runs
        self._reader = reader
        # The only one at a time.
        self.stream: SharedStream | None = None

    def pack(self, run: Run) -> bytes:
        """The frame of a run. Raises what is wrong with one that has ended."""
        packet: Packet = run.packet
        return packet.frame(run)

    def opened(self, lane: Lane) -> "SharedStream":
        attachment, connection = self._session.attachment, LocalConnection(self._session)
        try:
            self.stream = SharedStream(connection, attachment, self._runs, self._reader, lane)
        except BaseException:
            connection.close()
            raise
        return self.stream

    @property
    def is_late(self) -> bool:
        """True where the packet under way takes so long that nothing is to wait for the next one."""
        return self.stream is not None and self.stream.is_late

    def look(self, now: float) -> float:
        """Find out whether the packet under way has become late; when it will be, in time.monotonic."""
        stream = self.stream
        if stream is None or not stream.runs:
            return math.inf
        late_at = stream.sent_at + LATE_S
        if late_at <= now:
            stream.late = stream.latest
        return late_at

    def end(self) -> None:
        """The reader ends with its carrier."""

    def wait_ended(self, timeout_s: float) -> None:
        """The reader is waited for by its carrier."""


class SharedStream(ConnectionStream):
    """One connection, on which one packet of runs at a time is under way. See `Stream`."""

    def __init__(
        self, connection: LocalConnection, attachment: int, runs: "RunQueue", reader: ReplyReader, lane: Lane
    ) -> None:
        super().__init__(connection, attachment, runs, reader, lane)
        # Those whose replies are to come, with what reads them, by their ids.
        self._under_way: dict[int, tuple[Run, Packet]] = {}
        # Ids of the latest packet, whose replies the daemon keeps until the next one, and when it was sent; and those
        # of the one before, which it still has if the next one has not arrived.
        self.latest: Sequence[int] = ()
        self._former: Sequence[int] = ()
        # Of these, those whose replies are fetched; who fetches them forgets them.
        self._fetched: set[int] = set()
        self.sent_at = 0.0
        # It, if it takes long.
        self.late: Sequence[int] | None = None

    @property
    def is_late(self) -> bool:
        """True where the packet that is under way has been found to take long."""
        return self.late is self.latest and bool(self._under_way)

    @property
    def runs(self) -> list[Run]:
        return [run for run, _ in list(self._under_way.values())]

    def carries(self, run: Run) -> bool:
        return run.id in self._under_way

    def put_on(self, run: Run) -> None:
        """Carry a run, too, that is about to be sent."""
        run.stream = self
        self._under_way[run.id] = run, run.packet

    def take_off(self) -> list[Run]:
        under_way, self._under_way = self._under_way, {}
        self._fetched.update(run_id for run_id, (run, _) in under_way.items() if not run.ended.is_set)
        return [run for run, _ in under_way.values()]

    def send(self, run: Run, packet: Sequence[bytes]) -> None:
        """Send the runs that have been put on, of which this is one, in as many frames."""
        self.sent_at = time.monotonic()
        self._former, self.latest = self.latest, tuple(self._under_way)
        self._fetched.intersection_update(self._former)
        data = b"".join(packet)
        now = perf_counter_ns()
        for run in self.runs:
            run.stamps.sent_ns = now
        self._connection.send(data)

    def read_here(self, run: Run) -> None:
        raise NotImplementedError("these replies are read by the thread that reads all replies")

    def read_ready(self) -> None:
        latest = self.latest
        try:
            try:
                self._take(self._connection.receive(LOCAL_PACKET_BYTES, AT_ONCE))
            except BlockingIOError:
                pass
            except OSError:
                self._take(b"")
            if self._under_way and self.latest is latest:  # Else who has sent the next packet has done so.
                self.read_elsewhere()
        except BaseException as error:  # No memory, perhaps. Others are read all the same.
            _log.exception("replies could not be read")
            if self.latest is not latest:
                pass  # The next packet has been sent, and who sent it sees to its replies.
            elif runs := self.runs:
                self._runs.could_not_read(self, runs[0], error)  # The replies of the others are fetched.
            else:  # It may not have been freed.
                self.shut_down()
                self._runs.lost(self, BROKEN)

    def stop(self, run: Run, reason: NnrtError) -> None:
        self.read_elsewhere()
        run.fail(reason)

    def close(self) -> None:
        super().close()
        for run_id in {*self._former, *self.latest} - self._fetched:
            self._runs.forget(run_id)

    def _take(self, data: bytes) -> None:
        """Hand out replies, or the end of the connection, to the queue."""
        ended: list[tuple[Run, Finish]] = []
        try:
            try:
                for reply in replies_in(data):
                    if (one := self._ended(reply)) is not None:
                        ended.append(one)
            except InvalidParameter:  # Of no bytes there are no frames.
                self._runs.lost(self, BROKEN)
            else:
                if ended and not self._under_way:
                    self._runs.freed(self)
        except BaseException as error:  # The stream doesn't carry them any more: nobody else would end them.
            for run, _ in ended:
                run.fail(told(error, _COULD_NOT_READ))
            raise
        for run, finish in ended:
            try:
                finish()
            except BaseException as error:
                run.fail(told(error, _COULD_NOT_READ))

    def _ended(self, reply: Reply) -> tuple[Run, Finish] | None:
        """Take off the run that a reply answers, and say how it ends; None where it answers none, or is fetched."""
        run, packet = self._under_way.get(reply.run_id, (None, None))
        if run is None or packet is None:
            _log.debug(ANSWERS_NONE)
            return None
        outcome = reply.outcome
        if outcome is not None and outcome.kept:
            self._fetched.add(run.id)
            finish: Finish = partial(self._runs.fetch, run, self.attachment)
        elif outcome is not None and outcome.is_unknown:
            finish = partial(self._send_again, run, packet)
        else:
            run.stamps.answered_ns = perf_counter_ns()
            finish = partial(run.finish, partial(packet.outputs, run, reply), reply)
        ended = run, finish
        # Last of all, for what comes before may raise. It may have been given up meanwhile, with the stream.
        return ended if self._under_way.pop(run.id, None) is not None else None

    def _send_again(self, run: Run, packet: Packet) -> None:
        """Have a run go by itself, with its description, which the daemon has forgotten."""
        packet.description.is_answered = False
        self._runs.begin_again(run)
