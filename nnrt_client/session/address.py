"""The address of a daemon, as plain sockets see it."""

import ipaddress
import socket
from typing import Any

from nnrt_hdi.errors import InvalidParameter

# Of a port.
_MOST_DIGITS = 5


class Address:
    """The sockets behind an address that has been reached before."""

    def __init__(self, address: str) -> None:
        """Resolves the address now, so that asking later needs no name service."""
        self._targets: list[tuple[int, Any]] = []
        path = address.removeprefix("unix:")
        host, _, port = address.rpartition(":")
        if path != address:
            self._targets = [(socket.AF_UNIX, path)]
        elif port.isascii() and port.isdecimal() and len(port) <= _MOST_DIGITS:
            try:
                found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
            except (OSError, ValueError):
                return  # An address that only gRPC understands.
            self._targets = [(family, target) for family, _, _, _, target in found]

    @property
    def is_local(self) -> bool:
        """True where it is on this host for sure."""
        return bool(self._targets) and all(
            family == socket.AF_UNIX or ipaddress.ip_address(target[0]).is_loopback for family, target in self._targets
        )

    def refuses(self, timeout_s: float) -> bool:
        """Tell if it is certain that no process listens there: the host says so, or the Unix socket is gone."""
        return bool(self._targets) and all(_refuses(*target, timeout_s) for target in self._targets)


def require_port(address: str) -> None:
    """Refuse a host without a port, for which gRPC would take one of its own. Raises InvalidParameter."""
    if ":" not in address or address.endswith("]"):
        raise InvalidParameter(f"it has no port; give {address or 'HOST'}:PORT, or unix:PATH", place=address)


def _refuses(family: int, target: Any, timeout_s: float) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(timeout_s)
            probe.connect(target)
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    except (OSError, ValueError):  # A path may be none that could be.
        return False
    return False
