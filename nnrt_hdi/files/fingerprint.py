"""Telling whether a file is still the one that it was, and as it was."""

import os
from typing import NamedTuple


class Fingerprint(NamedTuple):
    """A file and the state it is in: another value after each change of it, and for each other file."""

    device: int
    inode: int
    size_bytes: int
    written_ns: int
    # With its mode and its name as well.
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Fingerprint":
        """Take the fingerprint of the file that has this status."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
