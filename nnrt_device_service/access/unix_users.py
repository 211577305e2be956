"""Users of this host, as the kernel names them."""

from pathlib import Path

_USUAL = 65534


def _shared_user() -> int:
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):  # Another system.
        return _USUAL


# Whom the kernel names in place of every user that the daemon's user namespace doesn't know, such as those of other
# containers; and `nobody`. It is one number for many, so it says of no client who it is.
SHARED_USER = _shared_user()
