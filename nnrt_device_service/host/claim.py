"""Exclusive claim of an accelerator by the daemon that serves it, independent of any state directory.

The claim is a Unix socket with an abstract name: it needs no file system, and the kernel frees it when the process
ends. It excludes other daemons of the same network namespace.
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

# Backlog of the socket. Processes that connect to learn its owner stay in the backlog, which nobody reads.
_MOST_ASKED = 4096
# Suffixes of the variables that limit which accelerators a process sees.
_CHOOSING = ("VISIBLE_DEVICES", "_AFFINITY_MASK")


def device_key(backend: str, options: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the texts that select a daemon's accelerator. Daemons with different keys have different accelerators."""
    variables = {name: value for name, value in environment.items() if name.endswith(_CHOOSING)}
    return (backend, *(f"{name}={value}" for each in (options, variables) for name, value in sorted(each.items())))


def claim(device_name: str, *details: str) -> None:
    """Claim an accelerator until this process ends. `details` distinguish accelerators of the same name.

    Raises OperationForbidden if another process of this user, or of root, has claimed it. Logs a warning, and claims
    nothing, if the socket can't be bound, or if another user's process has bound its name: otherwise any user could
    block a daemon.
    """
    if sys.platform != "linux":
        return
    name, place = socket_name(device_name, *details), f"accelerator {device_name!r}"
    try:
        with socket.socket(socket.AF_UNIX) as claimed:
            claimed.bind(name)
            claimed.listen(_MOST_ASKED)
            claimed.detach()  # Keep the descriptor open until the process ends.
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
    """Return the process id and user of the claim's owner; 0 and None if they are unknown."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        asking.connect(name)
        peer = peer_of(asking)
        return peer.pid, peer.user_id
    return 0, None
