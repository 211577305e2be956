"""The claim of an accelerator by the daemon that serves it, whatever any directory knows of daemons.

It is a Unix socket with an abstract name: it needs no file system, and the kernel frees it with the process. It holds
among the daemons that share a network namespace.
"""

import os
import socket
import sys
from contextlib import suppress
from hashlib import sha256

from nnrt_device_service.host.peer import peer_of
from nnrt_hdi.errors import OperationForbidden

# Those who ask whose it is and go away are kept in the socket's queue, which is never read.
_MOST_ASKED = 4096
# So end the variables by which the libraries of accelerators let a process see only some of them.
_CHOOSING = ("VISIBLE_DEVICES", "_AFFINITY_MASK")


def claim(device_name: str, *details: str) -> None:
    """Claim an accelerator until this process ends. The details tell it from others that a backend calls the same.

    Raises OperationForbidden where another process has it.
    """
    if sys.platform != "linux":
        return
    variables = (f"{key}={value}" for key, value in os.environ.items() if key.endswith(_CHOOSING))
    known_by = "\0".join((device_name, *details, *sorted(variables)))
    name = f"\0nnrt-accelerator-{sha256(known_by.encode(errors='surrogateescape')).hexdigest()}"
    claimed = socket.socket(socket.AF_UNIX)
    try:
        claimed.bind(name)
        claimed.listen(_MOST_ASKED)
    except OSError as error:
        claimed.close()
        raise OperationForbidden(
            f"{_owner_of(name)} serves it already; end that, or serve another one", place=f"accelerator {device_name!r}"
        ) from error
    claimed.detach()  # Nobody closes it any more.


def _owner_of(name: str) -> str:
    with suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        asking.connect(name)
        return f"the process with pid {peer_of(asking).pid}"
    return "another process"
