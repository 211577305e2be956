"""Where files may be mapped: only where no other host can take them away."""

import os
from pathlib import Path

# A file that another host removes, or cuts off, ends whoever has it mapped.
_OF_NETWORKS = ("nfs", "cifs", "smb", "9p", "ceph", "afs", "lustre", "gpfs", "beegfs", "glusterfs", "fuse")
_MOUNTS = Path("/proc/self/mountinfo")


def is_of_this_host(directory: Path) -> bool:
    """Tell whether no other host can change what is in a directory; false where nobody tells."""
    try:
        device = directory.stat().st_dev
        mounts = [line.split() for line in _MOUNTS.read_text(errors="replace").splitlines()]
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    kinds = [mount[mount.index("-") + 1] for mount in mounts if mount[2] == number and "-" in mount]
    return not any(kind.startswith(_OF_NETWORKS) for kind in kinds)
