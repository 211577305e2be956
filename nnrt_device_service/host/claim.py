"""The claim of an accelerator by the daemon that serves it, whatever any directory knows of daemons.

It is a Unix socket with an abstract name: it needs no file system, and the kernel frees it with the process. It holds
among the daemons that share a network namespace.
"""

import errno
import logging
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256

from nnrt_device_service.host.peer import peer_of
from nnrt_hdi.errors import OperationForbidden

_log = logging.getLogger(__name__)

# Those who ask whose it is and go away are kept in the socket's queue, which is never read.
_MOST_ASKED = 4096
# So end the variables by which the libraries of accelerators let a process see only some of them.
_CHOOSING = ("VISIBLE_DEVICES", "_AFFINITY_MASK")


def chosen_by(backend: str, options: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return what decides which accelerator a daemon gets: of two daemons that differ in it each has one."""
    variables = {name: value for name, value in environment.items() if name.endswith(_CHOOSING)}
    return (backend, *(f"{name}={value}" for each in (options, variables) for name, value in sorted(each.items())))


def claim(device_name: str, *details: str) -> None:
    """Claim an accelerator until this process ends. The details tell it from others that a backend calls the same.

    Raises OperationForbidden where another process of this user, or of root, has it. Anybody else could keep a daemon
    from it, and some hosts allow no such socket: there the log says so, and no more comes of it.
    """
    if sys.platform != "linux":
        return
    name, place = socket_name(device_name, *details), f"accelerator {device_name!r}"
    try:
        with socket.socket(socket.AF_UNIX) as claimed:
            claimed.bind(name)
            claimed.listen(_MOST_ASKED)
            claimed.detach()  # Nobody closes it any more.
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            _log.warning("%s: it can't be claimed: %s; others may serve it as well", place, error.strerror)
            return
        pid, user = _owner_of(name)
        if user in (0, os.geteuid()):
            raise OperationForbidden(
                f"the process with pid {pid} serves it already; end that, or serve another one", place=place
            ) from error
        who = "a process that can't be asked" if user is None else f"the process with pid {pid} of user {user}"
        _log.warning("%s: %s holds its name, and may serve it as well", place, who)


def socket_name(device_name: str, *details: str) -> str:
    known_by = "\0".join((device_name, *details))
    return f"\0nnrt-accelerator-{sha256(known_by.encode(errors='surrogateescape')).hexdigest()}"


def _owner_of(name: str) -> tuple[int, int | None]:
    """Return the holder's pid and user; no user where it doesn't say."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        asking.connect(name)
        peer = peer_of(asking)
        return peer.pid, peer.user_id
    return 0, None
