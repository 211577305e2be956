"""How runs travel: over a few long-lived calls, each carrying one run at a time.

A stream costs half of a unary call per run (docs/adr/0001-carrier-of-a-run.md). One run per stream keeps what
a unary call would give: a timeout or a cancellation ends the call, and with it that run and no other. A run has an id
too, by which its reply is fetched when its stream was lost (docs/adr/0004-reconnection.md).
"""

import logging
import math
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import grpc

from nnrt_client.buffer import Buffer, Elements
from nnrt_client.connection import Connection
from nnrt_client.fork import LockOwner
from nnrt_client.run_call import Outputs, RunCall
from nnrt_client.waiting_runs import WaitingRuns
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import NnrtError, OperationFailed, TimedOut
from nnrt_hdi.limits import MAX_RUN_IDS
from nnrt_hdi.run_codec import Incoming
from nnrt_hdi.v2 import prepared_model_pb2

_log = logging.getLogger(__name__)

# Streams of a session that are left for uploads.
_RESERVED_STREAMS = 2
# RunRequest.timeout_ms is a uint32. Who asks for more than these 49 days gets them.
_MAX_TIMEOUT_MS = 2**32 - 1

Decode = Callable[[list[Elements]], Any]


class PendingRun:
    """A run that has been accepted.

    Its future ends exactly once: with what `decode` makes of the outputs, or an NnrtError.
    """

    def __init__(self, run_id: int, call: RunCall, decode: Decode, timeout_ms: int | None, priority: Priority) -> None:
        self.priority = priority
        self.id = run_id
        self.call = call
        timeout_ms = None if timeout_ms is None else min(timeout_ms, _MAX_TIMEOUT_MS)
        self.timeout_ms = timeout_ms
        self.deadline = math.inf if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self.future: Future[Any] = Future()
        self.owner: RunStreams | None = None
        self.stream: RunStream | None = None
        # Whether the thread that asked for it reads its reply, too.
        self.is_callers = False
        # Why it ends, once nobody wants its outputs any more, though it has not ended yet.
        self.given_up: NnrtError | None = None
        self._decode = decode
        # Held by who ends it, or writes its outputs.
        self._ending = threading.Lock()
        self._has_ended = self._is_past_cancelling = False

    def read(self) -> None:
        """Wait for the reply of a run that is the caller's, unless it waits for its turn in the queue."""
        stream = self.stream
        if self.is_callers and stream is not None:
            del self  # Its error would know this frame: in a cycle, tensors would stay in memory.
            stream.read_here()

    def abandon(self, error: NnrtError) -> None:
        """End it, see `RunStreams.abandon`."""
        if self.owner is not None:
            self.owner.abandon(self, error)

    def end_when_cancelled(self) -> None:
        """Abandon it when its future is cancelled, which is about to be somebody else's."""
        # Not the run itself: in a cycle of run and future, results would stay in memory until they are looked for.
        self.future.add_done_callback(partial(_abandon_cancelled, weakref.ref(self)))

    def received(self, reply: Incoming, replies: Iterator[Incoming]) -> Outputs:
        """The outputs of the run's reply and of the chunks behind it; see `RunCall.read`. The run doesn't end before
        this returns: where it has targets it may be writing them."""
        call = self.call
        if call.targets is None:
            return call.read(reply, replies, call.signature.results, None)
        with self._ending:
            if self._has_ended or not self._begins_to_end():
                raise OperationFailed("the run has ended")
            return call.read(reply, replies, call.signature.results, call.targets)

    def end(self, outputs: Outputs) -> None:
        """Hand over the outputs, or why there are none, unless the run has already ended."""
        if self.given_up is not None:
            self.fail(self.given_up)
        elif self._is_ours_to_end():
            try:
                result = self._decode(outputs())
            except Exception as error:
                self.future.set_exception(error)
                # The error knows this frame: in a cycle, tensors would stay in memory until it is looked for.
                del self, outputs
            else:
                self.future.set_result(result)

    def fail(self, error: NnrtError) -> None:
        """Hand over the error, or why the run was given up before, unless it has already ended."""
        if self._is_ours_to_end():
            self.future.set_exception(self.given_up or error)

    @property
    def remaining_ms(self) -> int | None:
        """What is left of its time, for the daemon; None without a limit."""
        return None if self.timeout_ms is None else max(int((self.deadline - time.monotonic()) * 1000), 1)

    @property
    def is_written_there(self) -> bool:
        """Whether the daemon writes outputs into tensors."""
        return any(isinstance(target, Buffer) for target in self.call.targets or ())

    def fail_in_child(self, error: NnrtError) -> None:
        """The same after a fork, whoever held the future's lock before. Its callbacks are the parent's."""
        self._ending = threading.Lock()
        self.future._condition = threading.Condition()
        self.future._done_callbacks = []  # type: ignore[attr-defined]
        if not self.future.done():
            self.fail(error)

    def _is_ours_to_end(self) -> bool:
        """Whether it has not ended yet, by itself or by its future's `cancel`."""
        with self._ending:
            if self._has_ended:
                return False
            self._has_ended = True
            return self._begins_to_end()

    def _begins_to_end(self) -> bool:
        """Whether its future has not been cancelled, and now never is."""
        self._is_past_cancelling = self._is_past_cancelling or self.future.set_running_or_notify_cancel()
        return self._is_past_cancelling


def _abandon_cancelled(reference: "weakref.ref[PendingRun]", future: "Future[Any]") -> None:
    run = reference()
    if run is not None and future.cancelled():
        run.abandon(OperationFailed("the run was cancelled"))


class RunStreams(LockOwner):
    """The run streams of a connection, opened as they are needed up to the daemon's limit.

    Who waits for a run reads its reply: no other thread need wake up. The replies of other runs are read by a few
    threads, of which there are as many as runs under way have needed so far.

    While the connection is lost runs wait: new ones in the queue, and those that were on their way at their streams,
    which fetch the replies when the connection is found again.
    """

    # What its runs are.
    _kind = PendingRun

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._limit = max(connection.welcome.limits.session_streams - _RESERVED_STREAMS, 1)
        self._idle: list[RunStream] = []
        self._open: set[RunStream] = set()
        self._readers: set[threading.Thread] = set()
        self._unread: queue.SimpleQueue[RunStream | None] = queue.SimpleQueue()
        self._unread_count = 0
        self._waiting: WaitingRuns[PendingRun] = WaitingRuns()
        self._death: NnrtError | None = None
        self._watch: threading.Thread | None = None
        self._watch_wakes_at = math.inf
        self._canceller: threading.Thread | None = None
        self._cancelled: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        super().__init__()
        connection.on_death(self._end_all)
        connection.on_attached(self._place_waiting)

    def make_locks(self) -> None:
        self._changed = threading.Condition()

    def enter_child(self, reason: NnrtError) -> None:
        self._death = self._death or reason
        for run in list(self._in_flight()):
            run.stream = None
            run.fail_in_child(reason)
        self._waiting.take_all()
        self._idle.clear()
        self._open.clear()
        self._readers.clear()

    def submit(
        self,
        call: RunCall,
        decode: Decode,
        timeout_ms: int | None = None,
        priority: Priority = Priority.NONE,
        is_callers: bool = False,
    ) -> PendingRun:
        """Start a run, or queue it until a stream is free. Whoever starts one as the caller's calls its `read` next.

        Raises the error of a session that is over.
        """
        run = self._kind(self._connection.next_run_id(), call, decode, timeout_ms, priority)
        run.is_callers = is_callers
        self._begin(run)
        return run

    def take_over(self, run: PendingRun) -> None:
        """Carry a run that could not be sent in another way."""
        try:
            self._begin(run)
        except NnrtError as error:
            run.fail(error.copy())  # This one knows this frame, and with it the run.

    def read_elsewhere(self, stream: "RunStream") -> None:
        """Have a thread wait for the reply on a stream."""
        with self._changed:
            self._unread.put(stream)
            self._unread_count += 1
            if self._unread_count > len(self._readers) or self._death is not None:
                self._start_reader()

    def _begin(self, run: PendingRun) -> None:
        run.owner = self
        with self._changed:
            if self._death is not None:
                raise self._death.copy()
            self._place(run)
            self._watch_until(run.deadline)

    def abandon(self, run: PendingRun, error: NnrtError) -> None:
        """End a run, wherever it is. The daemon stops it too, and a late result goes nowhere.

        One whose outputs the daemon itself writes into tensors ends when the daemon has confirmed that it has stopped,
        or after `verdict_timeout_s`: they are the application's again then, and nothing must be written there later.
        """
        is_first = run.given_up is None
        error = run.given_up = run.given_up or error
        with self._changed:
            stream = run.stream
            if stream is not None and stream.run is run and run.is_written_there:
                if is_first:
                    self._cancel(run.id)
                    run.deadline = time.monotonic() + self._connection.settings.verdict_timeout_s
                    self._watch_until(run.deadline)
                if time.monotonic() < run.deadline:
                    return
            if stream is None:
                self._waiting.remove(run)
            elif stream.run is run:
                stream.run = None
                self._open.discard(stream)
                stream.cancel()
                self._cancel(run.id)
        run.fail(error)

    def finished(self, stream: "RunStream") -> PendingRun | None:
        """The stream's run has its reply: which run that was, while the stream goes on with the next one."""
        with self._changed:
            run, stream.run = stream.run, None
            if run is not None:
                stream.answered = run.id
            if stream in self._open:
                self._next(stream)
        return run

    def lost(self, stream: "RunStream") -> PendingRun | None:
        """The stream is over: the run it leaves behind. Those that wait get another stream."""
        with self._changed:
            run, stream.run = stream.run, None
            self._open.discard(stream)
        self._place_waiting()
        return run

    def forget(self, run_id: int) -> None:
        """Let the daemon give up what it keeps of a run whose reply is here."""
        with self._changed:
            if self._death is None:
                self._cancel(run_id)

    def _place_waiting(self) -> None:
        with self._changed:
            for stream in [stream for stream in self._idle if not stream.is_of_this_line]:
                self._idle.remove(stream)
                self._retire(stream)
            try:
                while self._waiting and len(self._open) < self._limit and self._connection.is_attached:
                    self._next(self._opened())
            except NnrtError:
                pass  # The session is over, or lost again; `_end_all` ends those that wait, or this is called again.

    def _place(self, run: PendingRun) -> None:
        is_attached = self._connection.is_attached  # Asked once, for it changes at any time.
        if self._has_room and is_attached and not self._is_ready(run):
            return
        while self._idle and is_attached:
            stream = self._idle.pop()
            if stream.is_of_this_line:
                stream.send(run)
                return
            self._retire(stream)
        if is_attached and len(self._open) < self._limit:
            self._opened().send(run)
        else:
            run.is_callers = False
            self._waiting.append(run)

    @property
    def _has_room(self) -> bool:
        return bool(self._idle) or len(self._open) < self._limit

    def _is_ready(self, run: PendingRun) -> bool:
        """Whether it can be sent here, which it is about to be; else it goes another way."""
        return True

    def _opened(self) -> "RunStream":
        stream = self._new_stream()
        self._open.add(stream)
        return stream

    def _new_stream(self) -> "RunStream":
        return RunStream(self, self._connection)

    def _start_reader(self) -> None:
        name = f"nnrt-runs {self._connection.address}"
        reader = threading.Thread(target=self._read, name=name, daemon=True)
        reader.start()
        self._readers.add(reader)

    def _read(self) -> None:
        try:
            while True:
                # When the session is over, what is left is read, and nothing waited for.
                stream = self._unread.get(block=self._death is None)
                if stream is None:
                    continue  # Woken to see that it is over.
                stream.read()
                stream = None  # It keeps no tensors alive.
                with self._changed:
                    self._unread_count -= 1
        except queue.Empty:
            pass
        finally:
            if self._death is not None:
                self._unread.put(None)  # For the next one.
            with self._changed:
                self._readers.discard(threading.current_thread())

    def _next(self, stream: "RunStream") -> None:
        if self._death is not None or not stream.is_of_this_line:
            self._retire(stream)
        else:
            while self._waiting:
                if self._is_ready(run := self._waiting.take()):
                    stream.send(run)
                    return
            self._idle.append(stream)

    def _retire(self, stream: "RunStream") -> None:
        """Close a stream that carries no run any more. Nobody reads it, who would notice that it ends."""
        self._open.discard(stream)
        stream.close()
        if stream.answered:  # The next request would have told the daemon so.
            self.forget(stream.answered)

    def _end_all(self, reason: NnrtError) -> None:
        """End the runs that wait.

        One on a stream ends with it, when the connection closes its channel: a reply that the daemon sent before it
        ended is still read.
        """
        with self._changed:
            self._death = reason
            waiting = self._waiting.take_all()
            while self._idle:
                self._retire(self._idle.pop())
            for stream in self._open:
                stream.hang_up()
            self._cancelled.put(None)
            self._unread.put(None)
            self._changed.notify_all()
        for run in waiting:
            run.fail(reason.copy())

    def wait_ended(self, timeout_s: float) -> None:
        """Wait until every run of a session that is over has ended. A thread that ends runs doesn't wait for itself."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            readers = self._readers - {threading.current_thread()}
        for reader in readers:
            reader.join(max(deadline - time.monotonic(), 0.0))

    def _in_flight(self) -> Iterator[PendingRun]:
        yield from (stream.run for stream in self._open if stream.run is not None)
        yield from self._waiting

    # ---- cancellations: the end of its stream doesn't stop a run, for that may be a lost connection

    def _cancel(self, run_id: int) -> None:
        self._cancelled.put(run_id)
        if self._canceller is None:
            self._canceller = threading.Thread(target=self._tell_cancelled, name="nnrt-cancel", daemon=True)
            self._canceller.start()

    def _tell_cancelled(self) -> None:
        while (run_id := self._cancelled.get()) is not None:
            request = prepared_model_pb2.CancelRunsRequest(run_ids=[run_id])
            while not self._cancelled.empty() and len(request.run_ids) < MAX_RUN_IDS:
                if (run_id := self._cancelled.get()) is None:
                    return
                request.run_ids.append(run_id)
            connection = self._connection
            try:
                connection.call(
                    connection.models.CancelRuns,
                    request,
                    connection.settings.query_timeout_s,
                    "PreparedModel.CancelRuns",
                )
            except NnrtError as error:
                _log.debug("cancelled runs may go on: %s", error)

    # ---- timeouts: the daemon keeps them too, but it may be the one that is stuck

    def _watch_until(self, deadline: float) -> None:
        if deadline >= self._watch_wakes_at:
            return
        self._watch_wakes_at = deadline
        if self._watch is None:
            self._watch = threading.Thread(target=self._watch_deadlines, name="nnrt-deadlines", daemon=True)
            self._watch.start()
        else:
            self._changed.notify_all()

    def _watch_deadlines(self) -> None:
        while True:
            with self._changed:
                if self._death is not None:
                    return
                now = time.monotonic()
                late = [run for run in self._in_flight() if run.deadline <= now]
                if not late:
                    self._watch_wakes_at = min((run.deadline for run in self._in_flight()), default=math.inf)
                    self._changed.wait(None if self._watch_wakes_at == math.inf else self._watch_wakes_at - now)
            for run in late:
                self.abandon(run, TimedOut(f"the run took longer than {run.timeout_ms} ms"))


class RunStream(LockOwner):
    """One PreparedModel.RunStream call. Its state is its owner's to change."""

    def __init__(self, streams: RunStreams, connection: Connection) -> None:
        self.run: PendingRun | None = None
        self._streams = streams
        self._connection = connection
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._attachment = connection.attachment
        # The last run whose reply came on this stream.
        self.answered = 0
        self._message_bytes = connection.welcome.limits.message_bytes
        self._call: Any = None
        self._open()
        super().__init__()

    def _open(self) -> None:
        self._call = self._connection.start(self._connection.models.RunStream, self._requests())

    @property
    def is_of_this_line(self) -> bool:
        """Whether it can carry a run."""
        return self._attachment == self._connection.attachment and self._call.is_active()

    def make_locks(self) -> None:
        """It has none; in a child its call must not be freed."""

    def send(self, run: PendingRun) -> None:
        run.stream = self
        self.run = run
        run.call.begin()
        fields = {"run_id": run.id}
        if (remaining_ms := run.remaining_ms) is not None:
            fields["timeout_ms"] = remaining_ms
        self._outbox.put((run, run.call.messages(self._message_bytes, self._connection.compressor, **fields)))
        if not run.is_callers:
            self._streams.read_elsewhere(self)

    def _requests(self) -> Iterator[Any]:
        """What is sent, made when gRPC asks for it, in a thread of gRPC's."""
        while (sent := self._outbox.get()) is not None:
            run, messages = sent
            for message in messages:
                if self.run is not run:
                    break  # It has ended; the daemon waits for no more of it.
                yield message
            del run, messages, sent  # An idle stream keeps no tensors alive.
            message = None

    def cancel(self) -> None:
        self._call.cancel()
        self.hang_up()

    def hang_up(self) -> None:
        """Let the thread that sends go."""
        self._outbox.put(None)

    def close(self) -> None:
        """Give up what it holds. Nobody may be reading it."""
        self.hang_up()

    def read_here(self) -> None:
        """`read` in a thread of the application."""
        self.read()

    def read(self) -> None:
        """Hand out the reply of the run on it, or what came of the run."""
        try:
            reply = next(self._call, None)
            outputs = self._outputs(self.run, reply) if reply is not None else None
        except grpc.RpcError as error:
            error.__traceback__ = None  # The error is the call, which lives on and would keep this frame.
            self._lose(error)
        except NnrtError as error:
            self._call.cancel()
            self._end(error.copy())  # This one knows this frame.
        else:
            if outputs is None:
                self._end(OperationFailed("the daemon ended the run stream", place=self._connection.place))
            else:
                self._finish(outputs)

    def _finish(self, outputs: Outputs) -> None:
        """The reply of the run is here; the stream goes on."""
        run = self._streams.finished(self)
        if run is not None:
            run.end(outputs)
            self.answered = run.id
        else:  # It was abandoned, and this stream with it.
            self.close()
        del run, outputs  # Errors know this frame, and an idle stream keeps no tensors alive.

    def _lose(self, broken: Any) -> None:
        """The stream is over; the reply of the run may be had in another way."""
        failure = self._pursue(broken)
        self._end(failure or OperationFailed("the daemon ended the run", place=self._connection.place))

    def _end(self, failure: NnrtError) -> None:
        """Let the run end with this, if it has not ended yet."""
        run = self._streams.lost(self)
        if run is not None:
            run.fail(failure)
        if self.answered:  # The next request would have told the daemon so.
            self._streams.forget(self.answered)
        self.close()
        del run, failure  # The error may know this frame.

    def _outputs(self, run: PendingRun | None, reply: Incoming) -> Outputs:
        """See `PendingRun.received`."""
        if run is None:
            return list  # Its call is being cancelled.
        compressor = self._connection.compressor
        return run.received(reply, self._call if compressor is None else compressor.counted(self._call))

    def _pursue(self, broken: Any) -> NnrtError | None:
        """Fetch the reply of the run that was on its way when the stream broke (None: that is kept for us); or why
        there is none."""
        connection = self._connection
        while (run := self.run) is not None:
            failure = broken and connection.verdict(broken, "PreparedModel.RunStream", since=self._attachment)
            if failure and (not connection.is_alive or not connection.was_cut_off(broken)):
                return failure
            is_second_failure = failure and self._attachment == connection.attachment
            self._attachment = connection.attachment
            try:
                self._call = connection.start(
                    connection.models.AwaitRun, prepared_model_pb2.AwaitRunRequest(run_id=run.id)
                )
                if self.run is not run:
                    self._call.cancel()  # It was abandoned meanwhile.
                outputs = self._outputs(run, next(self._call))
            except grpc.RpcError as error:
                error.__traceback__ = None  # The error is the call, which lives on and would keep this frame.
                if is_second_failure:
                    return failure
                broken = error
            except NnrtError as error:
                return error.copy()  # This one knows this frame, and with it the run whose error it becomes.
            else:
                self._streams.forget(run.id)
                run.end(outputs)
                return None
        return None
