"""Archive of a report: a compressed tar file with one file per part."""

import io
import re
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path

from nnrt_hdi.errors import InvalidFile, InvalidPath
from nnrt_hdi.files.atomic_write import atomic_write

MOST_BYTES = 64 << 20
"""Upper bound of a report's size, all parts together."""


def pack(name: str, parts: Mapping[str, str]) -> bytes:
    """Return an archive with one file per part, in a folder called `name`."""
    packing = io.BytesIO()
    with tarfile.open(fileobj=packing, mode="w:gz") as archive:
        for part, text in parts.items():
            data = text.encode(errors="backslashreplace")
            entry = tarfile.TarInfo(f"{name}/{part}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return packing.getvalue()


def unpack(data: bytes) -> dict[str, str]:
    """Return the parts of an archive. Raises InvalidFile if the data is no complete archive."""
    parts = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            for entry in archive:
                if (file := archive.extractfile(entry)) is not None:
                    parts[entry.name.partition("/")[2]] = file.read(MOST_BYTES).decode(errors="replace")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise InvalidFile(f"it is no report, or only a part of one: {error}") from error
    return parts


def file_name(subject: str) -> str:
    """Return the file name of a report made now, without suffix."""
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return f"nnrt-report-{re.sub('[^A-Za-z0-9.-]+', '-', subject)}-{at}"


def write_archive(directory: Path, name: str, data: bytes) -> Path:
    """Write an archive atomically, readable only by its owner, and return its path. Raises InvalidPath."""
    path = directory / f"{name}.tar.gz"
    try:
        with atomic_write(path, "report", 0o600) as file:
            file.write(data)
    except OSError as error:
        raise InvalidPath(f"a report can't be written there: {error.strerror}", place=str(directory)) from error
    return path
