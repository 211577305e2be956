"""Event loop of the process ("the loop"), in the thread `nnrt-io`, for work that no thread waits for.

The loop's state needs no locks, because no other thread changes it. Other threads ask the loop to call functions.
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


# Pause before the loop repeats a callback that raised MemoryError.
_PAUSE_S = 0.01

# Called with the error that a message raised, and the message's arguments.
OnFailure = Callable[[Exception, Sequence[Any]], object]


class Mailbox:
    """Queue of messages for the loop. A message is a function with arguments, which the loop calls.

    If the function raises MemoryError, the loop calls it once more, so it must allow that after a partial first call.
    """

    def __init__(self, loop: "IoLoop", on_failure: OnFailure, when_taken: Callable[[], object]) -> None:
        self._loop = loop
        self._on_failure = on_failure
        self._when_taken = when_taken
        # Function and arguments of each message.
        self._messages: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_second_try = False
        # Whether the loop has taken messages since the last call of `when_taken`.
        self._has_taken = False

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Ask the loop to call `function` soon. Any thread may call this, which takes no lock."""
        self._messages.append((function, arguments))
        try:
            self._loop.wake(self)
        except MemoryError:
            self._loop.wake(self)

    def arguments(self) -> list[Any]:
        """Return the arguments of all waiting messages, in one list."""
        return [argument for _, arguments in list(self._messages) for argument in arguments]

    def take(self) -> None:
        """Call the functions of the messages that wait now. Only the loop calls this.

        Raises MemoryError if a function must be called a second time.
        """
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
            del function, arguments  # Otherwise they would keep tensors alive.
        if self._has_taken:
            self._when_taken()
            self._has_taken = False


class IoLoop(LockOwner):
    """Event loop of the process. It starts with the first session and runs until the process ends."""

    def __init__(self) -> None:
        """Start the loop's thread.

        Raises RuntimeError if no thread can be started, OSError if no descriptor is left.
        """
        super().__init__()
        self.events = asyncio.new_event_loop()
        self.events.set_exception_handler(self._repeat)
        self._own_mailbox = Mailbox(self, _log_failure, _do_nothing)
        # Mailboxes that have messages. asyncio's call_soon_threadsafe would swallow an OSError that a signal handler
        # raises.
        self._full_mailboxes: deque[Mailbox] = deque()
        # Whether the loop is taking messages now. Only the loop sets this: a signal could interrupt another thread
        # before it resets the flag.
        self._is_taking = False
        # How often the loop has received bytes that wake it, and this number when a thread last sent one.
        self._turn, self._woken_turn = 0, -1
        self._wake_reader, self._wake_writer = socket.socketpair()
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)
        self.events.add_reader(self._wake_reader.fileno(), self._take_messages)
        self._thread = threading.Thread(target=self.events.run_forever, name="nnrt-io", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self.events.close()
            self._wake_reader.close()
            self._wake_writer.close()
            raise

    @property
    def is_here(self) -> bool:
        """True if the calling thread is the loop's."""
        return threading.current_thread() is self._thread

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Ask the loop to call `function` soon. In a forked child this does nothing.

        Any thread may call this, which takes no lock.
        """
        self._own_mailbox.post(function, *arguments)

    def mailbox(self, on_failure: OnFailure, when_taken: Callable[[], object]) -> "Mailbox":
        """Make a mailbox. The loop calls `when_taken` after it has taken messages from it."""
        return Mailbox(self, on_failure, when_taken)

    def wake(self, mailbox: "Mailbox") -> None:
        """Ask the loop to take the messages of a mailbox. Any thread may call this."""
        if self is not _loop:
            return
        self._full_mailboxes.append(mailbox)
        turn = self._turn
        if self._is_taking or self._woken_turn == turn:  # It checks again before it waits, or a byte is under way.
            return
        try:
            self._wake_writer.send(b"\0")
        except BlockingIOError as error:  # It is being woken already.
            if raised_by_handler(error):
                raise
        self._woken_turn = turn

    def _take_messages(self) -> None:
        self._is_taking = True
        try:
            with suppress(BlockingIOError):
                self._wake_reader.recv(1 << 12)
            self._turn += 1  # Messages that come from now on need another byte.
            for _ in range(len(self._full_mailboxes)):
                self._full_mailboxes[0].take()
                self._full_mailboxes.popleft()
        finally:
            self._is_taking = False
        if self._full_mailboxes:  # Messages were posted meanwhile. Let the loop read its sockets first.
            self.events.call_soon(self._take_messages)

    def _repeat(self, events: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log the error of a loop's callback. Call the callback again later if it raised MemoryError."""
        error, handle = context.get("exception"), context.get("handle")
        _log.error("%s", context.get("message"), exc_info=error if isinstance(error, BaseException) else None)
        if isinstance(error, MemoryError) and isinstance(handle, asyncio.Handle) and not handle.cancelled():
            events.call_later(_PAUSE_S, _run_again, handle)
        elif self._full_mailboxes:  # Messages remain behind one whose `on_failure` has raised.
            events.call_later(_PAUSE_S, self._take_messages)

    def _enter_child(self, reason: NnrtError) -> None:
        global _loop
        _loop = None


_starting = ModuleLock()
_loop: IoLoop | None = None


def io_loop() -> IoLoop:
    """Return the loop of this process. The first call starts it.

    Raises RuntimeError or OSError if it can't be started.
    """
    global _loop
    with _starting.itself:
        if _loop is None:
            _loop = IoLoop()
        return _loop


def _run_again(handle: asyncio.Handle) -> None:
    if not handle.cancelled():  # For example, its link was closed meanwhile.
        handle._run()


def _log_failure(error: Exception, arguments: Sequence[object]) -> None:
    _log.error("a call that a thread asked the loop for failed", exc_info=error)


def _do_nothing() -> None:
    """Do nothing."""
