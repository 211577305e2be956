"""Connections to daemons, shared by sessions and device values, and closed with their last user.

Applications of ONNX Runtime close nothing, so a user's resources are released when the garbage collector finds it. That
may happen in any thread and at any line. So the finalizer takes no lock: it only puts the release into a queue, and a
thread that lives as long as there are users executes it.
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
    """Runtime with the count of its users, the sessions and values that need it. Made by `connect`."""

    def __init__(self, addresses: tuple[str, ...], settings: Settings) -> None:
        self._runtime = Runtime(addresses, settings)
        self._key = addresses, settings
        self._users = 0
        self._releases: queue.SimpleQueue[Release] = queue.SimpleQueue()

    @property
    def is_open(self) -> bool:
        """True if the runtime is open, which it is until its last user has released it."""
        return self._runtime._is_open

    def device(self, which: str | int | None) -> Device:
        """Return the device with this address, name or index, by default the first. Raise as `Runtime.device` does."""
        return self._runtime.device(0 if which is None else which)

    def devices(self) -> list[Device]:
        """Return the devices that answer, in the order of their addresses."""
        return self._runtime.devices()

    def add_user(self, user: object, release: Release) -> Release:
        """Register a user of the connection.

        Returns:
            Function that calls `release` and releases the connection. If the user is garbage collected first, the
            connection's thread does both.
        """
        with _lock.itself:
            self._users += 1
            if self._users == 1:
                threading.Thread(target=self._serve, name="nnrt-collected", daemon=True).start()
        watch = weakref.finalize(user, self._releases.put, release)
        watch.atexit = False  # When a process exits, the daemons free its resources.

        def close() -> None:
            if watch.detach() is not None:
                try:
                    release()
                finally:
                    self._releases.put(_release_nothing)

        return close

    def _serve(self) -> None:
        """Call the queued releases of garbage-collected users, and close the runtime after the last user."""
        while True:
            release = self._releases.get()
            try:
                release()
            except Exception:
                _log.exception("could not release the resources of a collected session or value")
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


def connect(
    which: str | int | None, user: object, release: Release, settings: Settings | None = None
) -> tuple[Connection, Release]:
    """Return the connection to a device, and the function that releases it; see `Connection.add_user`.

    Users with the same addresses and settings share a connection.

    Args:
        which: address of the device, or its name or index among the devices of NNRT_DEVICES.
        user: object that needs the connection until it is collected or calls the function.
        release: called once, when the user is collected or calls the function.
        settings: settings of the connection, by default those of the environment.
    """
    key = addresses_to_ask_for(which), settings or Settings()
    with _lock.itself:
        connection = _connections.get(key)
        if connection is None:
            connection = _connections[key] = Connection(*key)
        return connection, connection.add_user(user, release)


def _release_nothing() -> None:
    """Do nothing: the user has released its resources, and the thread only lowers the count of users."""
