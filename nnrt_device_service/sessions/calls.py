"""Calls and connections of a session: limited in number, and ended with the session."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from nnrt_device_service.settings import LimitReached, Settings
from nnrt_hdi.errors import UnavailableDevice

# Seconds that a new stream waits for cancelled ones to end before the limit counts.
_STREAM_END_S = 1.0
_STREAMS = "streams open"


class Calls:
    """Counter of the calls and connections of a session that are under way, by kind."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._stream_ended = threading.Condition(self._lock)
        self._is_open = True
        self._on_close: set[Callable[[], object]] = set()
        self._local_connections: set[tuple[Callable[[], object]]] = set()
        self._under_way: Counter[str] = Counter()
        self._streams_waiting = 0

    def count_call(self, end: Callable[[], object]) -> AbstractContextManager[None]:
        """Count a call other than a stream during the block; call `end` if the session ends first.

        Raises OutOfMemory beyond the limit.
        """
        return self._counted("calls under way", self._settings.session_calls, "--session-calls", end)

    def count_control_call(self, end: Callable[[], object]) -> AbstractContextManager[None]:
        """Count a call that awaits or cancels runs, as `count_call` does.

        These calls have a limit of their own, equal to that of streams, so that other calls can't use it up.
        """
        return self._counted("control calls under way", self._settings.session_streams, "--session-streams", end)

    def count_loop(self, end: Callable[[], object]) -> AbstractContextManager[None]:
        """Count a loop of a sequence, as `count_call` does."""
        return self._counted("loops under way", self._settings.session_loops, "--session-loops", end)

    @property
    def local_connection_count(self) -> int:
        return len(self._local_connections)

    @contextmanager
    def count_local_connection(self, end: Callable[[], object]) -> Iterator[None]:
        """Count a connection of the local socket, as `count_call` does.

        A session may have one connection for each stream, and one more for sharing memory. `break_off` stops counting
        a connection at once, although a run on it may go on.
        """
        entry = (end,)
        with self._lock:
            self._require_open()
            if len(self._local_connections) >= self._settings.session_streams + 1:
                raise LimitReached(
                    f"this session has {len(self._local_connections)} connections to the local socket, its limit; use"
                    " fewer, or raise the daemon's --session-streams",
                    "--session-streams",
                )
            self._local_connections.add(entry)
        try:
            yield
        finally:
            with self._lock:
                self._local_connections.discard(entry)

    def count_stream(self, end: Callable[[], object]) -> AbstractContextManager[None]:
        """Count a stream of any kind, as `count_call` does.

        At the limit this waits for streams that end: a client may open one right after it has cancelled another.
        """
        return self._counted(_STREAMS, self._settings.session_streams, "--session-streams", end)

    @contextmanager
    def _counted(self, what: str, limit: int, flag: str, end: Callable[[], object]) -> Iterator[None]:
        with self._lock:
            if what is _STREAMS:
                self._await_ending_streams(limit)
            self._require_open()
            if self._under_way[what] >= limit:
                raise LimitReached(
                    f"this session has {self._under_way[what]} {what}, its limit; use fewer at a time,"
                    f" or raise the daemon's {flag}",
                    flag,
                )
            self._under_way[what] += 1
            self._on_close.add(end)
        try:
            yield
        finally:
            with self._lock:
                self._under_way[what] -= 1
                self._on_close.discard(end)
                if what is _STREAMS:
                    self._stream_ended.notify()

    def _await_ending_streams(self, limit: int) -> None:
        if self._under_way[_STREAMS] >= limit and self._streams_waiting < limit:
            self._streams_waiting += 1
            self._stream_ended.wait_for(lambda: self._under_way[_STREAMS] < limit, _STREAM_END_S)
            self._streams_waiting -= 1

    def break_off(self, *, for_good: bool = False) -> list[Callable[[], object]]:
        """Return functions that end the calls and connections under way; with `for_good` no more may begin."""
        with self._lock:
            endings = [*self._on_close, *(end for (end,) in self._local_connections)]
            self._local_connections.clear()
            if for_good:
                self._is_open = False
                self._on_close.clear()
        return endings

    def _require_open(self) -> None:
        if not self._is_open:
            raise UnavailableDevice("the session has ended")
