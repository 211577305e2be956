"""Fingerprint: tells whether a file is unchanged."""

import os
from typing import NamedTuple


class Fingerprint(NamedTuple):
    """State of a file, which differs after each change, and between files."""

    device: int
    inode: int
    size_bytes: int
    written_ns: int
    # Changes also when mode or name change.
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Fingerprint":
        """Return the fingerprint of a file with this status."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
