"""Overflow user id: the id that the kernel reports for users that it can't map."""

from pathlib import Path

_USUAL = 65534


def _shared_user() -> int:
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):  # Not Linux.
        return _USUAL


# The kernel gives this id for `nobody`, and for all users that the daemon's user namespace doesn't know, such as those
# of other containers. Many users share it, so it identifies no client.
SHARED_USER = _shared_user()
