"""One thread that waits for replies on any number of sockets."""

import os
import select
import threading
from typing import Protocol


class Polled(Protocol):
    """Where a reply is waited for."""

    def fileno(self) -> int: ...

    def read_ready(self) -> None:
        """There is something to read, or there never will be. Must not wait."""


class Poller:
    """Has replies read, as they come, that nobody else waits for. (Of Linux, like the sockets.)"""

    def __init__(self, name: str) -> None:
        self._name = name
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._armed: dict[int, Polled] = {}
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def arm(self, polled: Polled) -> None:
        """Have this read once, as soon as there is something. Not after `stop`, nor in two threads at once."""
        fd = polled.fileno()
        self._armed[fd] = polled
        try:
            self._epoll.modify(fd, select.EPOLLIN | select.EPOLLONESHOT)
        except FileNotFoundError:
            self._epoll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)
        if self._thread is None:
            self._thread = threading.Thread(target=self._poll, name=self._name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Read what is armed, which must have ended, and no more."""
        self._is_stopped = True
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
        while not self._is_stopped:
            for fd, _ in self._epoll.poll():
                if (polled := self._armed.pop(fd, None)) is not None:
                    polled.read_ready()
                del polled  # It may know tensors.
        while self._armed:
            _, polled = self._armed.popitem()
            polled.read_ready()
            del polled
        self._close()

    def _close(self) -> None:
        self._epoll.close()
        os.close(self._wake)
