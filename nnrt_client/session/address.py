"""Address of a daemon, resolved to sockets."""

import ipaddress
import socket
from typing import Any

from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.ports import MAX_PORT, port_number

# Beginnings of addresses that end in no port, or in one of another kind.
_WITHOUT_PORT = ("unix:", "unix-abstract:", "vsock:")


class Address:
    """Socket addresses to which a daemon's address resolves."""

    def __init__(self, address: str) -> None:
        """Resolve the address now, so that the methods need no name service."""
        self._targets: list[tuple[int, Any]] = []
        path = address.removeprefix("unix:")
        host, _, port = address.rpartition(":")
        if path != address:
            self._targets = [(socket.AF_UNIX, path)]
        elif (number := port_number(port)) is not None:
            try:
                found = socket.getaddrinfo(host.strip("[]"), number, type=socket.SOCK_STREAM)
            except (OSError, ValueError):
                return  # gRPC may understand the address nevertheless.
            self._targets = [(family, target) for family, _, _, _, target in found]

    @property
    def is_local(self) -> bool:
        """True if the address is known to be on this host."""
        return bool(self._targets) and all(
            family == socket.AF_UNIX or ipaddress.ip_address(target[0]).is_loopback for family, target in self._targets
        )

    def refuses(self, timeout_s: float) -> bool:
        """Return whether it is certain that no process listens there.

        It is if the host refuses the connection, or if the Unix socket is gone.
        """
        return bool(self._targets) and all(_refuses(*target, timeout_s) for target in self._targets)


def require_port(address: str) -> None:
    """Raise InvalidParameter for a host without a port, or with a wrong one: gRPC would take a port of its own."""
    if ":" not in address or address.endswith("]"):
        raise InvalidParameter(f"it has no port; give {address or 'HOST'}:PORT, or unix:PATH", place=address)
    port = address.rpartition(":")[2]
    if port.isascii() and port.isdecimal() and not (port_number(port) or address.startswith(_WITHOUT_PORT)):
        raise InvalidParameter(f"its port is {port}; use 1..{MAX_PORT}", place=address)


def _refuses(family: int, target: Any, timeout_s: float) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(timeout_s)
            probe.connect(target)
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    except (OSError, ValueError):  # ValueError: the path is invalid.
        return False
    return False
