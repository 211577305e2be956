"""Connections to daemons, which sessions and values on devices share, and which go with the last of them.

ONNX Runtime's applications close nothing: what they have lets go when it is collected. That may happen in any thread,
at any line, so of a collected user only a note is left, which takes no lock; a thread that lives as long as there are
users does what there is to do.
"""

import logging
import queue
import threading
import weakref
from collections.abc import Callable

from nnrt_client.session.device import Device
from nnrt_client.session.fork import ModuleLock
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import Settings, addresses_to_ask_for

_log = logging.getLogger(__name__)

_lock = ModuleLock()

Release = Callable[[], object]


class Connection:
    """A runtime, and the number of those who use it. Made by `use`."""

    def __init__(self, addresses: tuple[str, ...], settings: Settings) -> None:
        self._runtime = Runtime(addresses, settings)
        self._key = addresses, settings
        self._users = 0
        self._notes: queue.SimpleQueue[Release] = queue.SimpleQueue()

    @property
    def is_open(self) -> bool:
        """True until the last user has given it up."""
        return self._runtime._is_open

    def device(self, which: str | int | None) -> Device:
        """The device that was asked for. Raises as `Runtime.device`."""
        return self._runtime.device(0 if which is None else which)

    def devices(self) -> list[Device]:
        """The devices that answer, in the order of their addresses."""
        return self._runtime.devices()

    def used_by(self, user: object, release: Release) -> Release:
        """Have `release` called once, and the connection given up: when the user is collected, or when what is returned
        is called."""
        with _lock.itself:
            self._users += 1
            if self._users == 1:
                threading.Thread(target=self._serve, name="nnrt-collected", daemon=True).start()
        watch = weakref.finalize(user, self._notes.put, release)
        watch.atexit = False  # Daemons free what a process leaves.

        def close() -> None:
            if watch.detach() is not None:
                try:
                    release()
                finally:
                    self._notes.put(_nothing)

        return close

    def _serve(self) -> None:
        """Release what the users had, one after another, and close when there are no more."""
        while True:
            release = self._notes.get()
            try:
                release()
            except Exception:
                _log.exception("something that nobody refers to any more could not be released")
            del release
            with _lock.itself:
                self._users -= 1
                if self._users:
                    continue
                if _connections.get(self._key) is self:
                    del _connections[self._key]
            self._runtime.close()
            return


_connections: dict[tuple[tuple[str, ...], Settings], Connection] = {}


def use(
    which: str | int | None, user: object, release: Release, settings: Settings | None = None
) -> tuple[Connection, Release]:
    """The connection to a device, given by its address, or by its name or place among those of NNRT_DEVICES; and what
    gives it up. Whoever has the same settings, by default those of the environment, shares it. See
    `Connection.used_by`."""
    key = addresses_to_ask_for(which), settings or Settings()
    with _lock.itself:
        connection = _connections.get(key)
        if connection is None:
            connection = _connections[key] = Connection(*key)
        return connection, connection.used_by(user, release)


def _nothing() -> None:
    """The user is closed already."""
