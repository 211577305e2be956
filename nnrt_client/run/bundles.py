"""Runs that wait for a stream anyway, several in a packet of the local socket (nnrt_hdi/wire/bundles.py)."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from nnrt_client.run.carrier import Lane
from nnrt_client.run.local_carrier import ANSWERS_NONE, AT_ONCE, BROKEN, ConnectionStream
from nnrt_client.run.plan import Plan
from nnrt_client.run.reply_reader import ReplyReader
from nnrt_client.run.run import Run, told
from nnrt_client.session.local_socket import LocalConnection
from nnrt_client.session.session import Session
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.limits import LOCAL_PACKET_BYTES, MAX_BUNDLED_RUNS
from nnrt_hdi.v2 import local_socket_pb2
from nnrt_hdi.wire import times_told
from nnrt_hdi.wire.bundles import FEATURE, HEAD_BYTES, LENGTH_BYTES, REPLIES_MARK, REQUESTS_MARK, bundled, parts_of

if TYPE_CHECKING:
    from nnrt_client.run.queue import RunQueue

_log = logging.getLogger(__name__)

# A bundle is over after that for which the daemon lets one client keep the others waiting.
_BUNDLE_NS = 200_000
# Runs that are longer have more to gain by going at once, each on its own stream.
_MOST_NS = _BUNDLE_NS // 2
_MOST_BYTES = 8 * 1024
# A bundle that takes longer holds up no run that waits for the next one.
LATE_S = 0.005
_ROOM_BYTES = LOCAL_PACKET_BYTES - HEAD_BYTES - LENGTH_BYTES * MAX_BUNDLED_RUNS - _MOST_BYTES

_COULD_NOT_READ = "the reply could not be read"
_BUNDLE = bytes((0, REPLIES_MARK >> 8))
_run_id = Struct("<8xQ").unpack_from

# Ends a run with the reply that has come.
Finish = Callable[[], None]


def plan_in_bundles(run: Run) -> Plan | None:
    """The plan of a run that is short enough to go with others; None for another one."""
    plan = run.signature.plans.of(run) if run.tensors is None else None
    if plan is None or not plan.is_inline or plan.busy_ns > _MOST_NS or plan.packet_bytes > _MOST_BYTES:
        return None
    return plan


class Room:
    """Says whether a bundle has room for one more run."""

    def __init__(self) -> None:
        self._runs, self._bytes, self._ns = MAX_BUNDLED_RUNS, _ROOM_BYTES, _BUNDLE_NS

    def is_left_after(self, run: Run) -> bool:
        """Take a run in; whether there is room for another one."""
        plan = run.packet
        self._runs -= 1
        if isinstance(plan, Plan):  # Else it has ended.
            self._bytes -= plan.packet_bytes
            self._ns -= plan.busy_ns
        return self._runs > 0 and self._bytes > 0 and self._ns > 0


class BundleCarrier:
    """Opens connections of the local socket for bundles. See `Carrier`."""

    is_read_by_callers = False

    def __init__(self, session: Session, runs: "RunQueue", reader: ReplyReader) -> None:
        """The reader is another carrier's."""
        self._session = session
        self._runs = runs
        self._reader = reader
        # The only one at a time.
        self.stream: BundleStream | None = None

    @staticmethod
    def is_known_to(session: Session) -> bool:
        """Tell if the daemon takes bundles."""
        return FEATURE in session.welcome.features

    def pack(self, run: Run) -> bytes:
        """A run's part of a bundle. Raises what is wrong with one that has ended."""
        plan: Plan = run.packet
        return plan.packed(run)

    def opened(self, lane: Lane) -> "BundleStream":
        attachment, connection = self._session.attachment, LocalConnection(self._session)
        try:
            self.stream = BundleStream(connection, attachment, self._runs, self._reader, lane)
        except BaseException:
            connection.close()
            raise
        return self.stream

    @property
    def is_late(self) -> bool:
        """True where the bundle under way takes so long that nothing is to wait for the next one."""
        return self.stream is not None and self.stream.is_late

    def look(self, now: float) -> float:
        """Find out whether the bundle under way has become late; when it will be, in time.monotonic."""
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


class BundleStream(ConnectionStream):
    """One connection, on which one bundle at a time is under way. See `Stream`."""

    def __init__(
        self, connection: LocalConnection, attachment: int, runs: "RunQueue", reader: ReplyReader, lane: Lane
    ) -> None:
        super().__init__(connection, attachment, runs, reader, lane)
        # Those whose replies are to come, with what reads them, by their ids.
        self._under_way: dict[int, tuple[Run, Plan]] = {}
        # Ids of the latest bundle, whose replies the daemon keeps until the next one, and when it was sent; and those
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
        """True where the bundle that is under way has been found to take long."""
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
        """Send the runs that have been put on, of which this is one, in as many parts."""
        self.sent_at = time.monotonic()
        self._former, self.latest = self.latest, tuple(self._under_way)
        self._fetched.intersection_update(self._former)
        data = packet[0] if len(packet) == 1 else bundled(REQUESTS_MARK, packet)
        now = perf_counter_ns()
        for run in self.runs:
            run.stamps.sent_ns = now
        self._connection.send(data)

    def read_here(self, run: Run) -> None:
        raise NotImplementedError("bundles are read by the thread that reads all replies")

    def read_ready(self) -> None:
        latest = self.latest
        try:
            try:
                self._take(self._connection.receive(LOCAL_PACKET_BYTES, AT_ONCE))
            except BlockingIOError:
                pass
            except OSError:
                self._take(b"")
            if self._under_way and self.latest is latest:  # Else who has sent the next bundle has done so.
                self.read_elsewhere()
        except BaseException as error:  # No memory, perhaps. Others are read all the same.
            _log.exception("replies could not be read")
            if self.latest is not latest:
                pass  # The next bundle has been sent, and who sent it sees to its replies.
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
                for part in parts_of(REPLIES_MARK, data) if data[:2] == _BUNDLE else (data,):
                    if (one := self._ended(part)) is not None:
                        ended.append(one)
            except (InvalidParameter, DecodeError):
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

    def _ended(self, part: bytes) -> tuple[Run, Finish] | None:
        """Take off the run that a reply answers, and say how it ends; None where it answers none, or is fetched. Raises
        DecodeError or InvalidParameter for what is no reply."""
        if part[:1] != b"\0":
            return self._ended_by_message(part)
        if len(part) < 16:
            raise InvalidParameter("a reply has no head")
        (run_id,) = _run_id(part)
        run, plan = self._under_way.get(run_id, (None, None))
        if run is None or plan is None:
            _log.debug(ANSWERS_NONE)
            return None
        told = plan.told(part)
        if told is None:
            raise InvalidParameter("a reply is another plan's")
        finish = partial(run.finish, partial(plan.outputs, part), told[1])
        run.stamps.answered_ns = perf_counter_ns()
        ended = run, finish
        # Last of all, for what comes before may raise. It may have been given up meanwhile, with the stream.
        return ended if self._under_way.pop(run_id, None) is not None else None

    def _ended_by_message(self, part: bytes) -> tuple[Run, Finish] | None:
        reply = local_socket_pb2.LocalReply.FromString(part)
        if not reply.HasField("run"):  # Of no bytes it has none.
            raise InvalidParameter("the connection has ended, or was refused")
        run, plan = self._under_way.get(reply.run.run_id, (None, None))
        if run is None or plan is None:
            _log.debug(ANSWERS_NONE)
            return None
        if reply.run.kept:
            self._fetched.add(run.id)
            finish: Finish = partial(self._runs.fetch, run, self.attachment)
        else:
            run.stamps.answered_ns = perf_counter_ns()
            finish = partial(run.finish, partial(plan.unpacked, run, reply.run), times_told(reply.run), reply.run)
        ended = run, finish
        return ended if self._under_way.pop(run.id, None) is not None else None
