"""Fingerprint and digest of a file: they tell whether it is unchanged, and whether it is the one that was written."""

import hashlib
import os
from typing import NamedTuple

# Bytes read at a time.
_PIECE_BYTES = 1 << 20


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


def digest_of(descriptor: int) -> tuple[int, bytes]:
    """Read an open file to its end, and return its size in bytes and its SHA-256.

    An unreadable block raises OSError here; in a mapping it would end the process.

    Raises:
        OSError: The file can't be read.
    """
    digest, piece, at = hashlib.sha256(), bytearray(_PIECE_BYTES), 0
    while count := os.preadv(descriptor, [piece], at):
        digest.update(memoryview(piece)[:count])
        at += count
    return at, digest.digest()
