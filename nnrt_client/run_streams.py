"""How runs travel: over a few long-lived calls, each carrying one run at a time.

A stream costs half of a unary call per run (docs/adr/0001-carrier-of-a-run.md). One run per stream keeps what
a unary call would give: a timeout or a cancellation ends the call, and with it that run and no other.
"""

import math
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import grpc

from nnrt_client.connection import Connection
from nnrt_hdi.errors import NnrtError, OperationFailed, TimedOut

# Streams of a session that are left for uploads.
_RESERVED_STREAMS = 2
# RunRequest.timeout_ms is a uint32. Who asks for more than these 49 days gets them.
_MAX_TIMEOUT_MS = 2**32 - 1


Decode = Callable[[Any], Any]


class PendingRun:
    """A run that has been accepted.

    Its future ends exactly once: with what `decode` makes of the RunReply, or an NnrtError.
    """

    def __init__(self, request: Any, decode: Decode, timeout_ms: int | None) -> None:
        self.request = request
        timeout_ms = None if timeout_ms is None else min(timeout_ms, _MAX_TIMEOUT_MS)
        self.timeout_ms = timeout_ms
        self.deadline = math.inf if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self.future: Future[Any] = Future()
        self.stream: _RunStream | None = None
        self._decode = decode
        self._once = threading.Lock()

    def end(self, reply: Any) -> None:
        """Hand over what the reply holds, unless the run has already ended."""
        if self._is_ours_to_end():
            try:
                result = self._decode(reply)
            except Exception as error:
                self.future.set_exception(error)
            else:
                self.future.set_result(result)

    def fail(self, error: NnrtError) -> None:
        """Hand over the error, unless the run has already ended."""
        if self._is_ours_to_end():
            self.future.set_exception(error)

    def _is_ours_to_end(self) -> bool:
        """Whether it has not ended yet, by itself or by its future's `cancel`."""
        return self._once.acquire(blocking=False) and self.future.set_running_or_notify_cancel()


class RunStreams:
    """The run streams of a connection, opened as they are needed up to the daemon's limit."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._limit = max(connection.welcome.limits.session_streams - _RESERVED_STREAMS, 1)
        self._changed = threading.Condition()
        self._idle: list[_RunStream] = []
        self._open: set[_RunStream] = set()
        self._waiting: deque[PendingRun] = deque()
        self._death: NnrtError | None = None
        self._watch: threading.Thread | None = None
        self._watch_wakes_at = math.inf
        connection.on_death(self._end_all)

    def submit(self, request: Any, decode: Decode, timeout_ms: int | None = None) -> PendingRun:
        """Start a run, or queue it until a stream is free. Raises the error of a session that is over."""
        run = PendingRun(request, decode, timeout_ms)
        with self._changed:
            if self._death is not None:
                raise self._death.copy()
            self._place(run)
            if run.deadline < self._watch_wakes_at:
                self._wake_watch(run.deadline)
        # Not the run itself: in a cycle of run and future, results would stay in memory until they are looked for.
        run.future.add_done_callback(partial(self._abandon_cancelled, weakref.ref(run)))
        return run

    def abandon(self, run: PendingRun, error: NnrtError) -> None:
        """End a run now, wherever it is. The daemon stops it too, and a late result goes nowhere."""
        with self._changed:
            stream = run.stream
            if run in self._waiting:
                self._waiting.remove(run)
            elif stream is not None and stream.run is run:
                stream.run = None
                self._open.discard(stream)
                stream.cancel()
        run.fail(error)

    def _abandon_cancelled(self, reference: "weakref.ref[PendingRun]", future: "Future[Any]") -> None:
        run = reference()
        if run is not None and future.cancelled():
            self.abandon(run, OperationFailed("the run was cancelled"))

    def finished(self, stream: "_RunStream") -> PendingRun | None:
        """The stream's run has its reply: which run that was, while the stream goes on with the next one."""
        with self._changed:
            run, stream.run = stream.run, None
            if stream in self._open:
                self._next(stream)
        return run

    def lost(self, stream: "_RunStream") -> PendingRun | None:
        """The stream is over: the run it leaves behind. Those that wait get another stream."""
        with self._changed:
            run, stream.run = stream.run, None
            self._open.discard(stream)
            if stream in self._idle:
                self._idle.remove(stream)
            try:
                while self._waiting and len(self._open) < self._limit:
                    self._opened().send(self._waiting.popleft())
            except NnrtError:
                pass  # The session is over; `_end_all` ends those that wait.
        return run

    def _place(self, run: PendingRun) -> None:
        if self._idle:
            self._idle.pop().send(run)
        elif len(self._open) < self._limit:
            self._opened().send(run)
        else:
            self._waiting.append(run)

    def _opened(self) -> "_RunStream":
        stream = _RunStream(self, self._connection)
        self._open.add(stream)
        return stream

    def _next(self, stream: "_RunStream") -> None:
        if self._waiting:
            stream.send(self._waiting.popleft())
        else:
            self._idle.append(stream)

    def _end_all(self, reason: NnrtError) -> None:
        """End the runs that wait.

        One on a stream ends with it, when the connection closes its channel: a reply that the daemon sent before it
        ended is still read.
        """
        with self._changed:
            self._death = reason
            waiting, self._waiting = self._waiting, deque()
            self._idle.clear()
            for stream in self._open:
                stream.hang_up()
            self._changed.notify_all()
        for run in waiting:
            run.fail(reason.copy())

    def _in_flight(self) -> Iterator[PendingRun]:
        yield from (stream.run for stream in self._open if stream.run is not None)
        yield from self._waiting

    # ---- timeouts: the daemon keeps them too, but it may be the one that is stuck

    def _wake_watch(self, deadline: float) -> None:
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


class _RunStream:
    """One PreparedModel.RunStream call, and the thread that reads its replies. Its state is its owner's to change."""

    def __init__(self, streams: RunStreams, connection: Connection) -> None:
        self.run: PendingRun | None = None
        self._streams = streams
        self._connection = connection
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call = connection.start(connection.models.RunStream, iter(self._outbox.get, None))
        threading.Thread(target=self._read, name=f"nnrt-runs {connection.address}", daemon=True).start()

    def send(self, run: PendingRun) -> None:
        run.stream = self
        self.run = run
        request, run.request = run.request, None
        if run.timeout_ms is not None:
            request.timeout_ms = max(int((run.deadline - time.monotonic()) * 1000), 1)
        self._outbox.put(request)

    def cancel(self) -> None:
        self._call.cancel()
        self.hang_up()

    def hang_up(self) -> None:
        """Let the thread that sends go."""
        self._outbox.put(None)

    def _read(self) -> None:
        broken: grpc.RpcError | None = None
        try:
            for reply in self._call:
                run = self._streams.finished(self)
                if run is not None:
                    run.end(reply)
                run = reply = None  # An idle stream keeps no tensors alive.
        except grpc.RpcError as error:
            broken = error
        finally:
            run = self._streams.lost(self)  # First of all, so that no other run is given to this stream.
            if run is not None:
                run.fail(self._failure(broken))
            self.hang_up()

    def _failure(self, broken: grpc.RpcError | None) -> NnrtError:
        if broken is None:
            return OperationFailed("the daemon ended the run stream", place=self._connection.place)
        return self._connection.verdict(broken, "PreparedModel.RunStream")
