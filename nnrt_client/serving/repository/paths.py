"""Paths in a repository, which don't leave it, and reads of files of a bounded size."""

from pathlib import Path
from stat import S_ISREG

from nnrt_hdi.errors import InvalidFile, InvalidPath, OutOfMemory


def require_inside(path: Path, folder: Path, root: Path) -> Path:
    """Return the path if it leads to something below a folder, also by links, which may lead anywhere below `root`.

    Raises:
        InvalidPath: It leads elsewhere.
    """
    try:
        is_inside = not path.is_absolute() or path.is_relative_to(folder)
        is_inside = is_inside and ".." not in path.relative_to(folder).parts
        found = path.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # The last for a circle of links.
        raise InvalidPath("it is no path below its folder", place=repr(path.name)) from error
    if not is_inside or not found.is_relative_to(root.resolve()):
        raise InvalidPath("it leads out of the repository; put the file itself there", place=repr(path.name))
    return path


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Return the content of a file.

    Raises:
        InvalidPath: It can't be read.
        InvalidFile: It is no regular file.
        OutOfMemory: It has more bytes than `most_bytes`.
    """
    try:
        if not S_ISREG(path.stat().st_mode):  # A pipe would let the reader wait for ever.
            raise InvalidFile("it is no regular file", place=repr(path.name))
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise InvalidPath(f"it can't be read: {error.strerror}", place=repr(path.name)) from error
    if len(data) > most_bytes:
        raise OutOfMemory(f"it has more than {most_bytes} bytes", place=repr(path.name))
    return data
