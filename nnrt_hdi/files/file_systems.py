"""File systems whose files may be mapped: those that no other host can change."""

import os
from pathlib import Path

# If another host removes or shortens a mapped file, this process ends.
_OF_NETWORKS = ("nfs", "cifs", "smb", "9p", "ceph", "afs", "lustre", "gpfs", "beegfs", "glusterfs", "fuse")
_MOUNTS = Path("/proc/self/mountinfo")


def is_of_this_host(directory: Path) -> bool:
    """Return whether no other host can change a directory; False if unknown."""
    try:
        device = directory.stat().st_dev
        mounts = [line.split() for line in _MOUNTS.read_text(errors="replace").splitlines()]
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    kinds = [mount[mount.index("-") + 1] for mount in mounts if mount[2] == number and "-" in mount]
    return not any(kind.startswith(_OF_NETWORKS) for kind in kinds)
