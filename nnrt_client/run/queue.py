"""The queue of a session: sends each run as soon as there is a stream for it, and sees that each one ends."""

import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from threading import get_ident
from time import perf_counter_ns

from nnrt_client.run.await_run import AwaitedRun
from nnrt_client.run.carrier import Lane, Stream
from nnrt_client.run.grpc_carrier import GrpcCarrier
from nnrt_client.run.local_carrier import LocalCarrier
from nnrt_client.run.packet import Packet
from nnrt_client.run.result import never_sent
from nnrt_client.run.run import Run, told
from nnrt_client.run.shared_carrier import LATE_S, Room, SharedCarrier, SharedStream, quick_description
from nnrt_client.session.broken_call import BrokenCall
from nnrt_client.session.fork import LockOwner
from nnrt_client.session.session import Session
from nnrt_hdi.errors import ConnectionFailed, NnrtError, OperationFailed, TimedOut
from nnrt_hdi.limits import MAX_RUN_IDS
from nnrt_hdi.signals import raised_by_handler
from nnrt_hdi.v2 import prepared_model_pb2

_log = logging.getLogger(__name__)

# Streams of a session that are left for uploads.
_RESERVED_STREAMS = 2
# Inputs of more than this are copied in a thread that nobody else waits for.
_LARGE_BYTES = 1 << 20
# While runs wait the supervisor looks so often whether they must: whoever frees a stream may be interrupted.
_LOOK_AGAIN_S = 0.5
# A reply that the daemon has sent is here after so long, or has been lost.
_ARRIVAL_S = 0.05

# Such as no descriptor left, no thread, or no memory.
_SHORTAGES = (NnrtError, RuntimeError, MemoryError, OSError)


_COULD_NOT_SEND = BrokenCall("the run could not be sent")


class RunQueue(LockOwner):
    """All runs of a session.

    Who runs synchronously sends the run and, on the local socket, reads its reply: no other thread need wake up. The
    replies of other runs are read by threads of the carriers. Each run that was sent has somebody who reads its reply;
    a reply says which run it answers, so it does no harm where two try.

    Under the lock a thread only decides who gets what; it sends, copies, connects and calls back afterwards. The main
    thread decides about nothing but a stream of its own, for it may be interrupted at any line; for the rest it asks
    the supervisor, a thread that also keeps deadlines and ends runs that are given up.

    While the session has no channel runs wait: new ones in the queue, and those under way for their replies, which are
    fetched when there is one again.
    """

    def __init__(self, session: Session) -> None:
        """Made by `Session.part`."""
        self._session = session
        self.call_back = session.call_back
        most = session.welcome.limits.session_streams
        limit = max(most - _RESERVED_STREAMS - 1, 1)
        self._remote = Lane(GrpcCarrier(session, self), limit, most > limit + _RESERVED_STREAMS)
        self._local = self._shared = self._shared_carrier = None
        if (socket := session.local_socket) is not None:
            # It has as many connections as gRPC has streams, and none is for uploads.
            limit = max(most - _RESERVED_STREAMS, 1)
            carrier = LocalCarrier(session, socket, self)
            self._shared_carrier = SharedCarrier(session, self, carrier.reader)
            self._shared = Lane(self._shared_carrier, 1, False)
            self._local = Lane(carrier, limit, most > limit)
        # Of runs that can be packets.
        self._packet_lane = self._local or self._remote
        self._lanes = [lane for lane in (self._shared, self._local, self._remote) if lane is not None]
        self._run_ids = count(1)
        self._death: NnrtError | None = None
        # The supervisor is asked to end a run, or to look what there is to do.
        self._asked: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        # Runs that are to wait for a stream, before they have their turns.
        self._arrived: deque[tuple[Lane, Run]] = deque()
        self._wakes_at = math.inf
        # Threads that look what to send.
        self._looking: set[int] = set()
        # Runs that are to end early but are still on a stream, with the time that the daemon has to end them.
        self._stopping: dict[Run, float] = {}
        # Runs of the main thread that it may have left, with the time until which they may end by themselves.
        self._doubted: dict[Run, float] = {}
        self._cancelled: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._canceller: threading.Thread | None = None
        # Runs with large inputs, each with the stream that is to carry it.
        self._to_pack: queue.SimpleQueue[tuple[Stream, Run] | None] = queue.SimpleQueue()
        self._packing: set[Run] = set()
        self._packer: threading.Thread | None = None
        self._awaited: set[AwaitedRun] = set()
        # The daemon takes as many calls that fetch and cancel as streams, and counts one for a while after its reply.
        self._most_fetches = max(most // 2, 1)
        super().__init__()
        self._started(self._supervise, "runs")
        session.on_death(self._end)
        session.on_attached(self._reattached)

    def _make_locks(self) -> None:
        self._lock = threading.RLock()
        self._starting = threading.RLock()
        self._fetching = threading.Semaphore(self._most_fetches)
        self._main = threading.main_thread().ident

    def _enter_child(self, reason: NnrtError) -> None:
        self._death = self._death or reason
        for run in list(self._under_way()):
            run.fail_in_child(reason)
        for lane in self._lanes:
            lane.waiting.take_all()
            lane.idle.clear()
            lane.streams.clear()
            lane.mains = None

    # ---- beginning

    def run_here(self, run: Run) -> None:
        """Have a run made, and wait for its end. Raises the session's death, if it is over."""
        run.id = next(self._run_ids)
        lane = self._packet_lane if run.signature.fits_packet else self._remote
        stream = self._claimed(lane)
        try:
            if stream is None:
                self._enqueue(lane, run)
            elif not self._sent(stream, run):
                self._unclaim(stream, run)
            elif lane.carrier.is_read_by_callers:
                stream.read_here(run)
            if not run.ended.is_set:
                run.ended.wait()
        except BaseException:
            self._unclaim(stream, run)
            raise

    def start(self, run: Run) -> None:
        """Have a run made; it ends some time. Raises the session's death, if it is over."""
        run.id = next(self._run_ids)
        lane = self._lane_of(run)
        # The main thread's own stream is for runs that it waits for.
        stream = None if get_ident() == self._main else self._claimed(lane)
        try:
            if stream is None:
                self._enqueue(lane, run)
            elif isinstance(stream, SharedStream):
                self._send_shared(stream, run)
            elif self._sent(stream, run):
                stream.read_elsewhere()
            else:
                self._release(stream)
        except BaseException:
            self._unclaim(stream, run)
            raise

    def _unclaim(self, stream: Stream | None, run: Run) -> None:
        """Free a stream that was claimed for a run and doesn't carry it. The main thread keeps its own."""
        if stream is not None and get_ident() != self._main and run.stream is not stream and not stream.is_over:
            self._release(stream)

    def _lane_of(self, run: Run) -> Lane:
        """Where a run travels whose reply its thread doesn't read."""
        carrier = self._shared_carrier
        if carrier is not None and not carrier.is_late and (description := quick_description(run)) is not None:
            assert self._shared is not None
            run.packet = Packet(description, run)
            return self._shared
        return self._packet_lane if run.signature.fits_packet else self._remote

    def _enqueue(self, lane: Lane, run: Run) -> None:
        """Have a run wait for a stream. The main thread takes no lock for it, in which a handler may come that runs the
        model and waits for others, who need the lock. Raises the session's death, if it is over."""
        self._arrived.append((lane, run))
        if get_ident() != self._main:
            self._take_arrived()
        self._keep_deadline(run)
        if lane is self._shared:
            self._wake_at(time.monotonic() + LATE_S)
        if self._death is not None:  # `_end` may have looked before.
            raise never_sent(self._death)
        if lane.idle or self._has_room(lane):  # Else the run goes when a stream has its reply.
            self._look()

    def _take_arrived(self) -> None:
        """Have runs that have arrived wait in turn."""
        with self._lock:
            while self._arrived:
                lane, run = self._arrived[0]
                lane.has_waiting = True
                lane.waiting.append(run)
                self._arrived.popleft()  # Last of all: what comes before may raise.

    def _keep_deadline(self, run: Run) -> None:
        """Have the supervisor look at a run in time."""
        self._wake_at(run.deadline)

    def _wake_at(self, until: float) -> None:
        """Have the supervisor look at that time."""
        if until < self._wakes_at:
            self._wakes_at = until
            self._asked.put(None)

    def _claimed(self, lane: Lane) -> Stream | None:
        """Claim a stream, which is nobody else's then; None where a run must wait for one. Raises the session's
        death."""
        if self._death is not None:
            raise never_sent(self._death)
        session = self._session
        if not session.is_attached:
            return None
        if get_ident() == self._main:
            stream = lane.mains
            left = None if stream is None else stream.run
            if stream is not None and left is None and stream.attachment == session.attachment:
                return stream
            return session.off_the_main_thread(self._stream_for_main, lane, left) if lane.has_room_for_main else None
        return None if lane.has_waiting else self._taken(lane)

    def _taken(self, lane: Lane, *, for_main: bool = False) -> Stream | None:
        """Take an idle stream, or open one; None where there are as many as there may be, or none can be had."""
        while True:
            try:
                stream = lane.idle.pop()
            except IndexError:
                break
            if stream.attachment == self._session.attachment:
                return stream
            self._discard(stream)
        with self._lock:
            if not self._has_room(lane, for_main=for_main) or self._death is not None:
                return None
            lane.opening += 1
        opened = None
        try:
            opened = lane.carrier.opened(lane)
        except _SHORTAGES as error:
            _log.debug("no stream can be opened: %s", error)
        finally:
            with self._lock:
                lane.opening -= 1
                if opened is not None and not opened.is_over:
                    lane.streams.add(opened)
        if opened is not None and (opened.is_over or self._death is not None):  # `_end` may have looked before.
            self._discard(opened)
            return None
        return opened

    def _has_room(self, lane: Lane, *, for_main: bool = False) -> bool:
        """Tell if one more stream may be opened. With the lock held."""
        return len(lane.streams) + lane.opening < lane.limit + (for_main or lane.mains is not None)

    def _stream_for_main(self, lane: Lane, left: Run | None) -> Stream | None:
        """Take a stream for the main thread's own, in place of one that still carries the run that was left on it. None
        as of `_taken`.

        The main thread may have been interrupted and gone on before this begins: then what it has is left alone.
        """
        with self._lock:
            former = lane.mains
            if former is not None and former.run is not left and former.run is not None:
                return former
            if former is not None and former.run is None and former.attachment == self._session.attachment:
                return former
            lane.mains = None
        if former is not None and former.run is not None:
            self._doubt(former)
        elif former is not None:
            self._discard(former)
        taken = self._taken(lane, for_main=True)
        with self._lock:
            if lane.mains is None:
                lane.mains, taken = taken, None
            mains = lane.mains
        if taken is not None:  # The main thread was interrupted, and has asked again.
            self._release(taken)
        return mains

    def _doubt(self, stream: Stream) -> None:
        """Have the supervisor watch a run in which the main thread was interrupted. The main thread goes on with it, or
        it has left the run as it was, not sent, or its reply lost: then the supervisor has the reply fetched after a
        while."""
        if (run := stream.run) is not None:
            self._doubted[run] = time.monotonic() + self._session.settings.verdict_timeout_s
            self._asked.put(None)

    def _sent(self, stream: Stream, run: Run) -> bool:
        """Send a run on a stream that was claimed for it; false where the stream is still free, for the run goes
        another way or has ended."""
        lane = stream.lane
        run.stamps.packing_ns = perf_counter_ns()
        try:
            packet = lane.carrier.pack(run)
        except Exception as error:
            if raised_by_handler(error):
                raise
            if lane is self._local and isinstance(error, _SHORTAGES):
                _log.debug("a run goes over gRPC: %s", error)
                self._enqueue(self._remote, run)
            else:
                # One that has been given up meanwhile has no inputs left.
                run.fail(run.given_up or told(error, _COULD_NOT_SEND.details))
            return False
        stream.run, run.stream = run, stream
        is_refused = stream.is_over
        if not is_refused:
            try:
                stream.send(run, packet)
            except OSError as error:  # Such as for want of memory. The daemon has nothing of it.
                if raised_by_handler(error):
                    raise
                _log.debug("a run goes over gRPC: %s", error)
                is_refused, lane, run.packet = True, self._remote, None
        if is_refused:
            if self._session.off_the_main_thread(self._taken_off, stream, run):
                self._enqueue(lane, run)
            return False
        if run.deadline < self._wakes_at:
            self._keep_deadline(run)
        return True

    def _taken_off(self, stream: Stream, run: Run) -> bool:
        """Take a run off a stream that is over; False where who has read its end takes it for sent."""
        with self._lock:
            carries, stream.run = stream.run is run, None
        self._discard(stream)
        if carries and run.given_up is not None:  # The main thread was interrupted, and waits for the end.
            run.fail(run.given_up)
        return carries

    def _reattached(self) -> None:
        """Discard the streams of the former channel, and send what waits: the session goes on."""
        former = [stream for lane in self._lanes for stream in list(lane.streams)]
        self._retire([stream for stream in former if stream.attachment != self._session.attachment])
        self._look()

    def _look(self) -> None:
        """Send runs that wait and needn't. The supervisor does it for the main thread, and again for one that looks
        already: runs that can't be sent would lead it deeper and deeper."""
        thread = get_ident()
        if thread == self._main or thread in self._looking:
            if self._asked.empty():  # Else the supervisor is about to look.
                self._asked.put(None)
            return
        self._looking.add(thread)
        try:
            self._take_arrived()
            for lane in self._lanes:
                self._dispatch(lane)
        finally:
            self._looking.discard(thread)

    def _dispatch(self, lane: Lane) -> None:
        while lane.has_waiting and self._death is None and self._session.is_attached:
            stream = self._taken(lane)
            if stream is None and (lane is self._remote or lane.streams or lane.opening):
                return
            run = None
            try:
                with self._lock:
                    run = lane.waiting.take() if lane.waiting else None
                self._begin_waiting(lane, stream, run)
            except BaseException as error:
                self._could_not_begin(stream, run, error)
            del run  # It keeps no tensors alive.

    def _begin_waiting(self, lane: Lane, stream: Stream | None, run: Run | None) -> None:
        """Begin a run that has waited, on the stream that was claimed for it; free the stream where that doesn't carry
        it."""
        with self._lock:
            lane.has_waiting = bool(lane.waiting)
        if run is None or run.ended.is_set:
            if stream is not None:
                self._release(stream)
        elif stream is None:  # No connection can be had.
            self._enqueue(self._remote, run)
        elif isinstance(stream, SharedStream):
            self._send_shared(stream, run)
        elif run.size_bytes > _LARGE_BYTES:
            self._packing.add(run)
            if self._packer is None:
                with self._starting:
                    self._packer = self._packer or self._started(self._pack_large, "pack")
            self._to_pack.put((stream, run))
        elif self._sent(stream, run):
            stream.read_elsewhere()
        else:
            self._release(stream)

    def _send_shared(self, stream: SharedStream, run: Run) -> None:
        """Send a run, and those that wait behind it, on a stream that was claimed for it; free it where none is left to
        be sent."""
        runs = [run]
        try:
            if stream.lane.has_waiting:
                self._take_along(stream.lane, runs)
            parts = self._put_on(stream, runs)
            if not parts and not stream.is_over:
                self._release(stream)
            elif stream.is_over or not self._sent_shared(stream, run, parts):
                self._enqueue_again(stream)
            else:
                stream.read_elsewhere()
        except BaseException as error:  # They wait no more: nobody else would end them.
            for one in runs:
                one.fail(told(error, _COULD_NOT_SEND.details))
            self._could_not_begin(stream, None, error)

    def _sent_shared(self, stream: SharedStream, run: Run, parts: Sequence[bytes]) -> bool:
        """Send runs that share a packet; false where the connection doesn't take them, as in `_sent`."""
        try:
            stream.send(run, parts)
        except OSError as error:
            _log.debug("runs go over gRPC: %s", error)
            return False
        return True

    def _take_along(self, lane: Lane, runs: list[Run]) -> None:
        """Add runs that wait to the one that has a packet, as there is room for them."""
        room = Room()
        with self._lock:
            while room.is_left_after(runs[-1]) and lane.waiting:
                runs.append(lane.waiting.take())
            lane.has_waiting = bool(lane.waiting)

    def _enqueue_again(self, stream: SharedStream) -> None:
        """Have the runs go over gRPC that were put on a stream in vain; who has read its end may have some of them."""
        with self._lock:
            runs = stream.take_off()
        self._discard(stream)
        for run in runs:
            run.packet = None
            self._enqueue(self._remote, run)

    def _put_on(self, stream: SharedStream, runs: Sequence[Run]) -> list[bytes]:
        """Pack runs, and have the stream carry them, but for those that have ended."""
        parts = []
        for run in runs:
            run.stamps.packing_ns = perf_counter_ns()
            try:
                parts.append(stream.lane.carrier.pack(run))
            except Exception as error:  # One that has been given up meanwhile has no inputs left.
                run.fail(run.given_up or told(error, _COULD_NOT_SEND.details))
                continue
            stream.put_on(run)
            if run.deadline < self._wakes_at:
                self._keep_deadline(run)
        return parts

    def _could_not_begin(self, stream: Stream | None, run: Run | None, error: BaseException) -> None:
        """Fail a run that met something unforeseen on its way out, and give up the stream that was claimed for it."""
        if run is not None:
            self._packing.discard(run)
            run.fail(told(error, _COULD_NOT_SEND.details))
        if stream is not None:
            stream.shut_down()
            self._lost(stream, _COULD_NOT_SEND)

    def _pack_large(self) -> None:
        while (packed := self._to_pack.get()) is not None:
            stream, run = packed
            try:
                if not run.ended.is_set and self._sent(stream, run):
                    stream.read_elsewhere()
                else:
                    self._release(stream)
                self._packing.discard(run)
            except BaseException as error:
                self._could_not_begin(stream, run, error)
            del packed, stream, run  # It keeps no tensors alive.

    # ---- replies

    def answered(self, stream: Stream, run: Run) -> None:
        """Go on with the stream: the reply of its run has been read."""
        stream.answered = run.id
        if get_ident() == self._main:
            if stream is stream.lane.mains:
                stream.run = None
            else:  # A handler ran the model meanwhile, and took the stream for left.
                self._session.off_the_main_thread(self._release, stream, run)
        else:
            self._release(stream, run)

    def freed(self, stream: Stream) -> None:
        """Go on with the stream: the replies of all runs of its packet have been read."""
        self._release(stream)

    def kept(self, stream: Stream, run: Run) -> None:
        """Have the reply of the stream's run fetched, which is too long for the stream."""
        self.answered(stream, run)
        self.fetch(run, stream.attachment)

    def fetch(self, run: Run, since: int) -> None:
        """Have the reply of a run fetched that is too long for its stream, which was opened at that attachment."""
        self._session.off_the_main_thread(self._await, run, None, since)

    def _release(self, stream: Stream, carried: Run | None = None) -> None:
        """Free a stream for the next run; unless it has that already, in place of the one that it carried."""
        lane = stream.lane
        with self._lock:
            if carried is not None and stream.run is not carried:
                return
            stream.run = None
            if stream is lane.mains and not stream.is_over:
                return
            is_over = self._death is not None or stream.is_over
            if not is_over and stream not in lane.idle:
                lane.idle.append(stream)
        if is_over:
            self._discard(stream)
        elif lane.has_waiting or self._arrived:
            self._look()

    def could_not_read(self, stream: Stream, run: Run | None, error: BaseException) -> None:
        """Fail a run whose reply met something unforeseen, and give up its stream. Called by the thread that read
        it."""
        self._session.off_the_main_thread(self._could_not_read, stream, run, error)

    def _could_not_read(self, stream: Stream, run: Run | None, error: BaseException) -> None:
        if run is not None:
            run.fail(told(error, _COULD_NOT_SEND.details))
            self._give_up_stream(stream, run)

    def _give_up_stream(self, stream: Stream, run: Run) -> None:
        """Give up a stream that still carries this run, whose reply won't come there."""
        if self.withdraw(stream, run):
            stream.shut_down()
            self._lost(stream, _COULD_NOT_SEND)

    def withdraw(self, stream: Stream, run: Run) -> bool:
        """Have a stream carry no further run, if it still carries this one; true if it does."""
        with self._lock:
            carries = stream.carries(run)
            stream.is_over = stream.is_over or carries
        return carries

    def lost(self, stream: Stream, broken: BrokenCall) -> None:
        """Give up a stream that is over; the reply of its run may be had in another way. Called by the thread that read
        it."""
        self._session.off_the_main_thread(self._lost, stream, broken)

    def _lost(self, stream: Stream, broken: BrokenCall) -> None:
        with self._lock:
            stream.is_over = True  # Before it gives its run away: who is about to send one looks afterwards.
            runs = stream.take_off()
        self._discard(stream)
        for run in runs:
            if run.ended.is_set:
                continue
            if self._death is not None:
                run.fail(self._death.copy())
            else:
                self._await(run, broken, stream.attachment)
        self._look()

    def _await(self, run: Run, broken: BrokenCall | None, since: int, left: Stream | None = None) -> None:
        """Fetch the reply of a run in a thread that may wait: for a verdict, where its stream was lost. The stream on
        which it may never come is given up afterwards, unless it has come there."""
        awaited = AwaitedRun(self._session, run, broken, since)
        self._awaited.add(awaited)
        run.stream = awaited

        def fetch() -> None:
            try:
                with self._fetching:
                    awaited.fetch()
                if left is not None:
                    self._give_up_stream(left, run)
                self.forget(run.id)  # Its reply is here; or it never arrived, and mustn't begin later.
                if awaited.never_arrived:
                    self.begin_again(run)
            finally:
                self._awaited.discard(awaited)
                awaited.ended.set()

        try:
            self._started(fetch, "await")
        except (RuntimeError, MemoryError) as error:
            self._awaited.discard(awaited)
            awaited.ended.set()
            run.fail(ConnectionFailed(f"its reply can't be fetched: {error}", place=self._session.place))

    def begin_again(self, run: Run) -> None:
        """Send a run that was lost on its way, or not understood, as another one, over gRPC."""
        run.id, run.stream, run.packet = next(self._run_ids), None, None
        try:
            self._enqueue(self._remote, run)  # Whatever was in its way may still be there.
        except NnrtError as death:
            run.fail(death)

    def _retire(self, streams: Sequence[Stream]) -> None:
        """Have these streams carry no further run, and close those that carry none: who reads the others will."""
        for stream in streams:
            with self._lock:
                stream.is_over = True  # Before it is asked for its run: who is about to send one looks afterwards.
                is_idle = not stream.runs
            if is_idle:
                self._discard(stream)

    def _discard(self, stream: Stream) -> None:
        """Close a stream that carries no run."""
        lane = stream.lane
        with self._lock:
            stream.is_over = True
            lane.streams.discard(stream)
            if stream is lane.mains:
                lane.mains = None
            else:
                with suppress(ValueError):  # A run may take it meanwhile, without the lock; it sees that it is over.
                    lane.idle.remove(stream)
        stream.close()
        if stream.answered:  # The next request would have told the daemon so.
            self.forget(stream.answered)

    # ---- runs that end early

    def give_up(self, run: Run) -> None:
        """End a run that was given up, wherever it is. The daemon stops it too.

        One whose outputs the daemon itself writes into tensors ends when the daemon has confirmed that it has stopped,
        or after `verdict_timeout_s`: they are the application's again then, and nothing must be written there later.
        """
        self._asked.put(run)
        if self._death is not None:  # The supervisor may be gone.
            run.fail(self._death.copy())

    def forget(self, run_id: int) -> None:
        """Let the daemon stop a run, or give up what it keeps of one whose reply is here."""
        if self._death is None:
            self._cancelled.put(run_id)
            if self._canceller is None:
                with self._starting:
                    self._canceller = self._canceller or self._started(self._tell_cancelled, "cancel")

    def _supervise(self) -> None:
        while self._death is None:
            try:
                self._supervise_once()
            except Exception:  # Of memory, perhaps. Others wait for it.
                _log.exception("the supervisor of runs failed")
                self._session.wait_over(_ARRIVAL_S)  # What failed may fail again at once.

    def _supervise_once(self) -> None:
        now = time.monotonic()
        # Before it looks: who comes later asks, but for runs without a timeout of their own, which are over later.
        self._wakes_at = horizon = now + self._session.settings.run_timeout_s
        is_waited = self._arrived or any(lane.has_waiting for lane in self._lanes)
        nearest = now + _LOOK_AGAIN_S if is_waited else horizon
        nearest = min(nearest, self._unshare(now))
        for run, until in list(self._doubted.items()):
            if until > now and not run.ended.is_set:
                nearest = min(nearest, until)
                continue
            del self._doubted[run]
            if not run.ended.is_set and (stream := run.carrying) is not None:
                stream.read_elsewhere()
                self._await(run, None, stream.attachment, left=stream)
        for run in set(self._under_way()):
            if run.ended.is_set:  # Its stream waits for the reply, but not for ever: it may be lost.
                self._stopping.setdefault(run, now + self._session.settings.verdict_timeout_s)
            until = self._stopping.get(run, run.deadline if run.given_up is None else now)
            if until > now:
                nearest = min(nearest, until)
            else:
                bound = f"{run.timeout_ms} ms" if run.timeout_ms else f"{self._session.settings.run_timeout_s:g} s"
                self._end_early(run, TimedOut(f"the run took longer than {bound}"), now)
                nearest = min(nearest, self._stopping.get(run, math.inf))
            del run  # It keeps no tensors alive while it waits.
        for run in [run for run in list(self._stopping) if run.carrying is None]:
            del self._stopping[run]
            run.fail(OperationFailed("the run was given up"))  # If nobody who has read its reply ends it.
        self._wakes_at = min(self._wakes_at, nearest)
        try:
            asked = self._asked.get(timeout=min(max(nearest - time.monotonic(), 0.0), threading.TIMEOUT_MAX))
        except queue.Empty:
            asked = None
        if asked is not None:
            self._end_early(asked, OperationFailed("the run was given up"), time.monotonic())
        self._look()

    def _unshare(self, now: float) -> float:
        """Have runs that wait behind a packet that takes long go each by itself; when it will have taken long."""
        carrier, lane = self._shared_carrier, self._shared
        if carrier is None or lane is None or self._local is None:
            return math.inf
        self._take_arrived()
        late_at = carrier.look(now) if lane.has_waiting else math.inf
        if not (carrier.is_late and lane.has_waiting):
            return late_at
        with self._lock:
            runs = lane.waiting.take_all()
            lane.has_waiting = False
        for run in runs:
            try:
                self._enqueue(self._local, run)
            except BaseException as error:
                run.fail(told(error, _COULD_NOT_SEND.details))
        return math.inf

    def _under_way(self) -> Iterator[Run]:
        """All runs that have begun, and not ended, or that are still on a stream."""
        for lane in self._lanes:
            yield from (run for stream in list(lane.streams) for run in stream.runs)
            with self._lock:
                waiting = list(lane.waiting)
            yield from waiting
        yield from (run for _, run in list(self._arrived))
        yield from list(self._packing)
        yield from list(self._stopping)
        yield from (run for awaited in list(self._awaited) if (run := awaited.run) is not None)

    def _end_early(self, run: Run, reason: NnrtError, now: float) -> None:
        stream = run.carrying
        if stream is None:  # It waits, or its reply is being read, or it was never sent.
            for lane in self._lanes:
                with self._lock:
                    lane.waiting.remove(run)
                    lane.has_waiting = bool(lane.waiting)
            run.fail(reason)
        elif run not in self._stopping:
            run.give_up(reason)
            self._stopping[run] = now + self._session.settings.verdict_timeout_s
            self.forget(run.id)
            stream.stop(run, reason)
        elif self._stopping[run] <= now:  # The daemon doesn't say that it has ended, or never had it.
            self._stopping[run] = math.inf
            if self.withdraw(stream, run):  # Else its reply has just come, and the stream may be another run's.
                stream.shut_down()
            run.fail(reason)

    def _expect_end(self, run_ids: set[int]) -> None:
        """The daemon has sent the replies of these runs, or never had them: they are about to come, if they do."""
        until = time.monotonic() + _ARRIVAL_S
        for run in [run for run in list(self._stopping) if run.id in run_ids]:
            self._stopping[run] = min(self._stopping.get(run, until), until)
        self._asked.put(None)

    def _tell_cancelled(self) -> None:
        while (run_id := self._cancelled.get()) is not None:
            request = prepared_model_pb2.CancelRunsRequest(run_ids=[run_id])
            while not self._cancelled.empty() and len(request.run_ids) < MAX_RUN_IDS:
                if (run_id := self._cancelled.get()) is None:
                    return
                request.run_ids.append(run_id)
            try:
                reply = self._session.call("PreparedModel.CancelRuns", request, self._session.settings.query_timeout_s)
                self._expect_end(set(request.run_ids) - set(reply.stopping_run_ids))
            except (ConnectionFailed, TimedOut) as error:  # Else the daemon would keep their replies to the end.
                _log.debug("it is told again of cancelled runs: %r", error)
                for run_id in request.run_ids:
                    self._cancelled.put(run_id)
            except Exception as error:  # Whatever it is, later ones are told of.
                _log.debug("cancelled runs may go on: %r", error)

    # ---- the end

    def _end(self, reason: NnrtError) -> None:
        """End all runs. One on a stream ends with it: a reply that the daemon sent before it ended is still read."""
        self._death = reason
        self._take_arrived()
        with self._lock:
            ending = [run for lane in self._lanes for run in lane.waiting.take_all()]
        for lane in self._lanes:
            streams = list(lane.streams)
            for stream in streams:
                stream.shut_down()
            lane.carrier.end()
            self._retire(streams)
        for run in (*ending, *list(self._packing)):
            run.fail(never_sent(reason))
        self._asked.put(None)
        self._cancelled.put(None)
        self._to_pack.put(None)

    def wait_ended(self, timeout_s: float) -> None:
        """Wait until every run of a session that is over has ended. A thread that ends runs doesn't wait for itself."""
        until = time.monotonic() + timeout_s
        for awaited in list(self._awaited):
            if awaited.reader != get_ident():
                awaited.ended.wait(max(until - time.monotonic(), 0.0))
        for lane in self._lanes:
            lane.carrier.wait_ended(max(until - time.monotonic(), 0.0))

    def _started(self, work: Callable[[], None], what: str) -> threading.Thread:
        thread = threading.Thread(target=work, name=f"nnrt-{what} {self._session.address}", daemon=True)
        thread.start()
        return thread
