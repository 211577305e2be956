"""The one event loop of a process, in the thread `nnrt-io`: what no thread waits for belongs to it.

Its state needs no locks, for nobody else touches it. Other threads have it call something.
"""

import asyncio
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from nnrt_client.session.fork import LockOwner, ModuleLock
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.signals import raised_by_handler

_log = logging.getLogger(__name__)


# What no memory was left for is tried again after so long.
_PAUSE_S = 0.01

# Learns what a message raised, and the arguments of that.
OnFailure = Callable[[Exception, Sequence[Any]], object]


class Mailbox:
    """Messages for the loop, which takes them one after another.

    One that no memory was left for is taken a second time: what a message calls may be called again after a part of it.
    """

    def __init__(self, loop: "IoLoop", on_failure: OnFailure, when_taken: Callable[[], object]) -> None:
        self._loop = loop
        self._on_failure = on_failure
        self._when_taken = when_taken
        # Each with what it calls, and with what.
        self._messages: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_second_try = False
        # Whether messages were taken that `when_taken` has not been called for.
        self._has_taken = False

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Have the loop call this soon. Any thread may ask, and takes no lock."""
        self._messages.append((function, arguments))
        try:
            self._loop.wake(self)
        except MemoryError:
            self._loop.wake(self)

    def arguments(self) -> list[Any]:
        """The arguments of all messages."""
        return [argument for _, arguments in list(self._messages) for argument in arguments]

    def take(self) -> None:
        """Do what the messages say that are there now. The loop's. Raises MemoryError for one that is to be taken
        again."""
        for _ in range(len(self._messages)):
            self._has_taken = True
            function, arguments = self._messages[0]
            try:
                function(*arguments)
            except Exception as error:
                if isinstance(error, MemoryError) and not self._is_second_try:
                    self._is_second_try = True
                    raise
                self._messages.popleft()
                self._is_second_try = False
                self._on_failure(error, arguments)
            else:
                self._messages.popleft()
                self._is_second_try = False
            del function, arguments  # They keep no tensors alive.
        if self._has_taken:
            self._when_taken()
            self._has_taken = False


class IoLoop(LockOwner):
    """The event loop. It is started with the first session, and lasts as long as the process."""

    def __init__(self) -> None:
        """Raises RuntimeError where there is no thread to be had, OSError where there is no descriptor."""
        super().__init__()
        self.events = asyncio.new_event_loop()
        self.events.set_exception_handler(self._repeat)
        self._own = Mailbox(self, _log_failure, _nothing)
        # Those that have messages. asyncio's own way would swallow an OSError that a signal handler raises.
        self._full: deque[Mailbox] = deque()
        # Whether the loop takes messages just now. Nobody else writes this: a signal could leave it wrong.
        self._is_taking = False
        # How often it has received what woke it; and how often it had when somebody woke it last.
        self._turn, self._woken_in = 0, -1
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self.events.add_reader(self._woken.fileno(), self._take_messages)
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
        self._own.post(function, *arguments)

    def mailbox(self, on_failure: OnFailure, when_taken: Callable[[], object]) -> "Mailbox":
        """Make a mailbox for messages of one kind. `when_taken` is called after some have been taken."""
        return Mailbox(self, on_failure, when_taken)

    def wake(self, mailbox: "Mailbox") -> None:
        """Have the loop take the messages of a mailbox. Any thread."""
        if self is not _loop:
            return
        self._full.append(mailbox)
        turn = self._turn
        if self._is_taking or self._woken_in == turn:  # It looks once more before it waits; or a byte is on its way.
            return
        try:
            self._waker.send(b"\0")
        except BlockingIOError as error:  # It is being woken.
            if raised_by_handler(error):
                raise
        self._woken_in = turn

    def _take_messages(self) -> None:
        self._is_taking = True
        try:
            with suppress(BlockingIOError):
                self._woken.recv(1 << 12)
            self._turn += 1  # From now on another byte is needed.
            for _ in range(len(self._full)):
                self._full[0].take()
                self._full.popleft()
        finally:
            self._is_taking = False
        if self._full:  # They were posted meanwhile. First the loop looks at its sockets.
            self.events.call_soon(self._take_messages)

    def _repeat(self, events: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Call again what no memory was left for. What else a callback raises is logged: others are called all the
        same."""
        error, handle = context.get("exception"), context.get("handle")
        _log.error("%s", context.get("message"), exc_info=error if isinstance(error, BaseException) else None)
        if isinstance(error, MemoryError) and isinstance(handle, asyncio.Handle) and not handle.cancelled():
            events.call_later(_PAUSE_S, _again, handle)
        elif self._full:  # Messages behind one whose failure could not be told.
            events.call_later(_PAUSE_S, self._take_messages)

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


def _again(handle: asyncio.Handle) -> None:
    if not handle.cancelled():  # As where the link has been closed since.
        handle._run()


def _log_failure(error: Exception, arguments: Sequence[object]) -> None:
    _log.error("what a thread wanted of the loop failed", exc_info=error)


def _nothing() -> None:
    """Do nothing."""
