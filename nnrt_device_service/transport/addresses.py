"""Checks of addresses to listen on, because gRPC doesn't say why it can't listen on one."""

import os
import socket
import sys
from pathlib import Path

from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.limits import TICKET_SUFFIX
from nnrt_hdi.ports import MAX_PORT, port_number

# Size of sun_path in sockaddr_un, without the terminating zero.
_MAX_UNIX_PATH_BYTES = {"darwin": 103}.get(sys.platform, 107)


def require_free_path(path: str) -> None:
    """Raise InvalidParameter if a Unix socket can't be bound at the path, or a process listens there.

    gRPC itself would replace a socket at the path, even one of another daemon.
    """
    place = f"address 'unix:{path}'"
    if not path:
        raise InvalidParameter("its path is empty; use unix:PATH", place=place)
    if path.endswith(TICKET_SUFFIX):
        who = f"at that place the daemon of unix:{path.removesuffix(TICKET_SUFFIX)} asks clients who they are"
        raise InvalidParameter(f"{who}; use a path that doesn't end in {TICKET_SUFFIX}", place=place)
    length = len(os.fsencode(path))
    if length > _MAX_UNIX_PATH_BYTES:
        raise InvalidParameter(f"its path has {length} bytes; use at most {_MAX_UNIX_PATH_BYTES}", place=place)
    if not Path(path).parent.is_dir():
        raise InvalidParameter(
            f"there is no directory {str(Path(path).parent)!r}; make it, or give another path", place=place
        )
    if not Path(path).exists():
        return
    if not Path(path).is_socket():
        raise InvalidParameter("what is there is no socket; move it away", place=place)
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(path) == 0:
            raise InvalidParameter("another process listens there", place=place)


def require_free_port(address: str, place: str) -> None:
    """Raise InvalidParameter if a TCP port can't be bound.

    gRPC itself takes the port modulo 65536, and doesn't say why it can't listen.
    """
    host, colon, port = address.rpartition(":")
    if not colon:
        raise InvalidParameter("it has no port; use HOST:PORT", place=place)
    if not host:
        raise InvalidParameter("its host is empty; name one, for example 0.0.0.0 for every IPv4 address", place=place)
    if (number := port_number(port)) is None:
        raise InvalidParameter(f"port is {port!r}; use 0..{MAX_PORT}, 0 for any free one", place=place)
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host.strip("[]"), number, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(target)
    except (OSError, ValueError) as error:  # ValueError: the host name has an invalid form.
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidParameter(f"can't listen there: {why}; give another, or port 0", place=place) from error
