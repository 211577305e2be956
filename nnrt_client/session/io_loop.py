"""The one event loop of a process, in the thread `nnrt-io`: what no thread waits for belongs to it.

Its state needs no locks, for nobody else touches it. Other threads append to a deque and call `wake`.
"""

import asyncio
import logging
import threading
from collections.abc import Callable

from nnrt_client.session.fork import LockOwner, ModuleLock
from nnrt_hdi.errors import NnrtError

_log = logging.getLogger(__name__)


class IoLoop(LockOwner):
    """The event loop. It is started with the first session, and lasts as long as the process."""

    def __init__(self) -> None:
        """Raises RuntimeError where there is no thread to be had, OSError where there is no descriptor."""
        super().__init__()
        self.events = asyncio.new_event_loop()
        self.events.set_exception_handler(_log_failure)
        self._thread = threading.Thread(target=self.events.run_forever, name="nnrt-io", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self.events.close()
            raise

    @property
    def is_here(self) -> bool:
        """True in the loop's own thread."""
        return threading.current_thread() is self._thread

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Have the loop call this soon. Any thread may ask, and takes no lock; nothing happens after a fork."""
        if self is _loop:
            self.events.call_soon_threadsafe(function, *arguments)

    def _make_locks(self) -> None:
        """It has none."""

    def _enter_child(self, reason: NnrtError) -> None:
        global _loop
        _loop = None


class Inbox:
    """What other threads want of an owner in the loop: it is called once for all that has come, in the loop."""

    def __init__(self, loop: IoLoop, take: Callable[[], object]) -> None:
        self._loop = loop
        self._take = take
        self._is_awake = False

    def wake(self) -> None:
        """Have the owner look what has come. Who was interrupted before this wakes it later."""
        if not self._is_awake:
            self._is_awake = True
            self._loop.call(self._look)

    def wake_surely(self) -> None:
        """Have the owner look, whoever was interrupted before in `wake`."""
        self._loop.call(self._look)

    def _look(self) -> None:
        self._is_awake = False  # Before it looks: who comes later wakes it again.
        self._take()


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
