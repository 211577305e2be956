"""Files that are written whole or not at all, and overwrite nothing unasked."""

import os
from contextlib import suppress
from pathlib import Path

from nnrt_hdi.errors import InvalidPath

_PUBLIC, _PRIVATE = 0o644, 0o600


def write_new(path: Path, data: bytes, *, is_private: bool, replaces: bool = False) -> None:
    """Write a file whole, in a folder that is made if it is missing. Raises InvalidPath for one that is there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(unfinished, "xb", opener=lambda name, flags: os.open(name, flags, _PRIVATE)) as file:
            os.fchmod(file.fileno(), _PRIVATE if is_private else _PUBLIC)
            file.write(data)
        if replaces:
            unfinished.replace(path)
        else:
            path.hardlink_to(unfinished)
    except FileExistsError as error:
        raise InvalidPath("it is there already; move it away, or give --replace", place=str(path)) from error
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()
