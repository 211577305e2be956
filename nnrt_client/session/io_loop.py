"""The one event loop of a process, in the thread `nnrt-io`: what no thread waits for belongs to it.

Its state needs no locks, for nobody else touches it. Other threads have it call something.
"""

import asyncio
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from nnrt_client.session.fork import LockOwner, ModuleLock
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.signals import raised_by_handler

_log = logging.getLogger(__name__)


class IoLoop(LockOwner):
    """The event loop. It is started with the first session, and lasts as long as the process."""

    def __init__(self) -> None:
        """Raises RuntimeError where there is no thread to be had, OSError where there is no descriptor."""
        super().__init__()
        self.events = asyncio.new_event_loop()
        self.events.set_exception_handler(_log_failure)
        # What other threads want called. asyncio's own way would swallow an OSError that a signal handler raises.
        self._calls: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self.events.add_reader(self._woken.fileno(), self._make_calls)
        self._thread = threading.Thread(target=self.events.run_forever, name="nnrt-io", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self.events.close()
            self._woken.close()
            self._waker.close()
            raise

    @property
    def is_here(self) -> bool:
        """True in the loop's own thread."""
        return threading.current_thread() is self._thread

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Have the loop call this soon. Any thread may ask, and takes no lock; nothing happens after a fork."""
        if self is not _loop:
            return
        self._calls.append((function, arguments))
        try:
            self._waker.send(b"\0")
        except BlockingIOError as error:  # It is being woken.
            if raised_by_handler(error):
                raise

    def _make_calls(self) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(1 << 12)
        while self._calls:
            function, arguments = self._calls.popleft()
            try:
                function(*arguments)
            except Exception:  # Of memory, perhaps. Others wait for the loop.
                _log.exception("what a thread wanted of the loop failed")
            del function, arguments  # They keep no tensors alive.

    def _make_locks(self) -> None:
        """It has none."""

    def _enter_child(self, reason: NnrtError) -> None:
        global _loop
        _loop = None


_starting = ModuleLock()
_loop: IoLoop | None = None


def io_loop() -> IoLoop:
    """Give the loop of this process. Raises RuntimeError or OSError where it can't be started."""
    global _loop
    with _starting.itself:
        if _loop is None:
            _loop = IoLoop()
        return _loop


def _log_failure(events: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Log what a callback raised: others are called all the same."""
    error = context.get("exception")
    _log.error("%s", context.get("message"), exc_info=error if isinstance(error, BaseException) else None)
