"""Memory in files without names."""

import logging
import os
from pathlib import Path

from nnrt_hdi.files.file_systems import is_of_this_host
from nnrt_hdi.mapped_files import MappedFile
from nnrt_hdi.shared_memory import has_few_descriptors

_log = logging.getLogger(__name__)


def file_memory(directory: Path, size_bytes: int) -> MappedFile | None:
    """Return zeroed memory in a file without a name, which disappears with the memory, also after a crash.

    The memory takes at most half of the room on the disk. Return None if there is too little, or if the file system
    can't hold such a file.
    """
    try:
        if not is_of_this_host(directory):
            raise OSError("other hosts may have the directory, too")
        descriptor = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
        try:
            disk = os.fstatvfs(descriptor)
            if size_bytes > disk.f_bavail * disk.f_frsize // 2 or has_few_descriptors(descriptor):
                raise OSError("there is too little room on the disk, or too few descriptors are left")
            os.posix_fallocate(descriptor, 0, size_bytes)  # A page without room on the disk would end this process.
            return MappedFile(descriptor, size_bytes)
        finally:
            os.close(descriptor)
    except (OSError, AttributeError) as error:  # AttributeError: the system has no files without names.
        _log.info("%d bytes are not in a file of %s but in memory: %s", size_bytes, directory, error)
        return None
