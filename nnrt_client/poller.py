"""One thread that waits for replies on any number of sockets."""

import logging
import os
import select
import threading
from typing import Protocol

_log = logging.getLogger(__name__)


class Polled(Protocol):
    """Where a reply is waited for."""

    def fileno(self) -> int: ...

    def read_ready(self) -> None:
        """There is something to read, or there never will be. Must not wait for more."""


class Poller:
    """Has replies read, as they come, that nobody else waits for. (Of Linux, like the sockets.)"""

    def __init__(self, name: str) -> None:
        self._name = name
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._armed: dict[int, Polled] = {}
        self._thread: threading.Thread | None = None

    def arm(self, polled: Polled) -> None:
        """Have this read once, as soon as there is something. Not after `stop`, nor in two threads at once."""
        fd = polled.fileno()
        self._armed[fd] = polled
        try:
            self._epoll.modify(fd, select.EPOLLIN | select.EPOLLONESHOT)
        except FileNotFoundError:
            self._epoll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)
        if self._thread is None:
            thread = threading.Thread(target=self._poll, name=self._name, daemon=True)
            thread.start()
            self._thread = thread  # One that could not be started is tried again.

    def stop(self) -> None:
        """Read what is armed, which must have ended, and no more."""
        if self._thread is None:
            self._close()
        else:
            os.eventfd_write(self._wake, 1)

    def join(self, timeout_s: float) -> None:
        """Wait for the end that `stop` has asked for, unless this is the thread that is to end."""
        if self._thread not in (None, threading.current_thread()):
            self._thread.join(timeout_s)

    def enter_child(self) -> None:
        """Do nothing any more: what is registered is the parent's."""
        self._armed.clear()
        self._thread = None

    def _poll(self) -> None:
        is_over = False
        while not is_over:
            for fd, _ in self._epoll.poll():
                if fd == self._wake:  # Nothing else ends it, for `stop` still writes there.
                    is_over = True
                else:
                    self._read(fd)
        while self._armed:
            self._read(next(iter(self._armed)))
        self._close()

    def _read(self, fd: int) -> None:
        if (polled := self._armed.pop(fd, None)) is not None:
            try:
                polled.read_ready()
            except BaseException:  # Such as SystemExit in an application's callback. Others are read all the same.
                _log.exception("%s: what a reply leads to failed", self._name)

    def _close(self) -> None:
        self._epoll.close()
        os.close(self._wake)
