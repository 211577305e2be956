"""Tickets that prove the users of clients on a Unix socket; the kernel knows them, but gRPC doesn't pass them on.

The daemon listens on a second socket beside PATH: PATH.who. A client that connects to it gets a ticket for its user,
which is valid once and for a short time, and sends it when it opens a session.
"""

import logging
import secrets
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

from nnrt_device_service.host.peer import peer_of
from nnrt_device_service.host.threads import start_thread
from nnrt_hdi.limits import TICKET_BYTES, TICKET_SUFFIX

_log = logging.getLogger(__name__)

# Seconds that a ticket is valid; a client sends it right after it got it.
_VALID_S = 30.0
# Most valid tickets of one user; one more replaces the oldest.
_MOST_PER_USER = 256
# Seconds between attempts to accept while the process has no descriptor left.
_PAUSE_S = 0.1


class Tickets:
    """Issued tickets that are not yet used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By user id: the time at which each ticket expires, earliest first. The user with the latest ticket is last.
        self._given: dict[int, dict[bytes, float]] = {}
        self._listeners: list[tuple[socket.socket, Path]] = []
        self._stopped = threading.Event()

    def listen(self, path: str) -> None:
        """Issue tickets to the clients of the Unix socket at this path.

        If the host doesn't support this, or PATH.who can't be bound, all clients of the socket count as one.
        """
        if not hasattr(socket, "SO_PEERCRED"):
            return
        who = Path(path + TICKET_SUFFIX)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if who.is_socket():
                who.unlink()  # Left by a daemon that was killed: `require_free_path` found no listener at `path`.
            listener.bind(str(who))
            who.chmod(0o777)  # A ticket is of use only to clients that may connect to the other socket.
            listener.listen()
        except OSError as error:
            listener.close()
            _log.warning("all clients at unix:%s count as one: the daemon can't learn their users: %s", path, error)
            return
        self._listeners.append((listener, who))
        start_thread(lambda: self._accept(listener), "tickets")

    def redeem(self, ticket: bytes) -> int | None:
        """Return the user id of a ticket and invalidate it, or return None for an invalid one."""
        now = time.monotonic()
        with self._lock:
            for user_id, tickets in self._given.items():
                if (until := tickets.pop(ticket, None)) is not None:
                    return user_id if now < until else None
        return None

    def stop(self) -> None:
        """Stop issuing tickets."""
        self._stopped.set()
        for listener, who in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            with suppress(OSError):
                who.unlink()

    def _accept(self, listener: socket.socket) -> None:
        with listener:
            while not self._stopped.is_set():
                try:
                    connection, _ = listener.accept()
                except OSError:
                    self._stopped.wait(_PAUSE_S)
                    continue
                # A client that has gone must not make others wait, so don't block.
                with connection, suppress(OSError):
                    connection.send(self._new(peer_of(connection).user_id), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def _new(self, user_id: int) -> bytes:
        ticket, now = secrets.token_bytes(TICKET_BYTES), time.monotonic()
        with self._lock:
            self._forget_expired(now)
            tickets = self._given.pop(user_id, {})
            while tickets and (len(tickets) >= _MOST_PER_USER or next(iter(tickets.values())) < now):
                del tickets[next(iter(tickets))]
            tickets[ticket] = now + _VALID_S
            self._given[user_id] = tickets
        return ticket

    def _forget_expired(self, now: float) -> None:
        """Forget users in the order of their latest tickets, oldest first, up to a user with a valid ticket."""
        while self._given:
            user_id, tickets = next(iter(self._given.items()))
            if tickets and next(reversed(tickets.values())) >= now:
                return
            del self._given[user_id]
