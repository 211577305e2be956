"""One thread that waits for replies on any number of sockets."""

import logging
import os
import select
import threading
from collections.abc import Callable
from typing import Protocol

_log = logging.getLogger(__name__)

_FAILED = "%s: what a reply leads to failed"


class Readable(Protocol):
    """A stream where a reply is waited for."""

    def fileno(self) -> int: ...

    def read_ready(self) -> None:
        """There is something to read, or there never will be. Must not wait for more."""


class ReplyReader:
    """Has replies read, as they come, that no other thread waits for. (Of Linux, like the sockets.)"""

    def __init__(self, name: str) -> None:
        """Raises OSError or RuntimeError where there is no descriptor or no thread to be had."""
        self._name = name
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._armed: dict[int, Readable] = {}
        self._lock = threading.Lock()
        # Whether it has been asked to read what is armed, and no more; and whether it has done so.
        self._is_stopping = self._is_over = False
        self._thread = threading.Thread(target=self._read, name=name, daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._close()
            raise

    def arm(self, stream: Readable) -> bool:
        """Have a stream read once, as soon as there is something to read; false where that won't be, for this reader
        has ended, or the stream is closed."""
        with self._lock:
            fd = stream.fileno()  # Nobody closes it, and opens another one of this number, before it is armed.
            if self._is_over or fd < 0:
                return False
            self._armed[fd] = stream
            try:
                self._epoll.modify(fd, select.EPOLLIN | select.EPOLLONESHOT)
            except FileNotFoundError:
                self._epoll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)
            except OSError:
                del self._armed[fd]
                return False
        return True

    def close(self, stream: Readable, close: Callable[[], object]) -> None:
        """Forget a stream, and close it."""
        with self._lock:
            fd = stream.fileno()
            if self._armed.get(fd) is stream:
                del self._armed[fd]
            close()

    def stop(self) -> None:
        """Read what is armed, which must have ended, and no more."""
        with self._lock:
            is_first, self._is_stopping = not self._is_stopping, True
        if is_first:
            os.eventfd_write(self._wake, 1)

    def join(self, timeout_s: float) -> None:
        """Wait for the end that `stop` has asked for, unless this is the thread that is to end."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _read(self) -> None:
        is_told = False
        while not is_told:
            for fd, _ in self._epoll.poll():
                if fd == self._wake:  # Nothing else ends it, for `stop` still writes there.
                    is_told = True
                    continue
                with self._lock:
                    stream = self._armed.pop(fd, None)
                if stream is None:
                    continue
                try:
                    stream.read_ready()
                except BaseException:  # No memory, perhaps. It is tried again, and others are read all the same.
                    _log.exception(_FAILED, self._name)
                    self.arm(stream)
                del stream
        while True:
            with self._lock:
                self._is_over = not self._armed
                streams, self._armed = self._armed, {}
            if self._is_over:
                break
            for stream in streams.values():
                try:
                    stream.read_ready()
                except BaseException:
                    _log.exception(_FAILED, self._name)
        self._close()

    def _close(self) -> None:
        self._epoll.close()
        os.close(self._wake)
