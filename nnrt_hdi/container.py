"""Files made of parts, of which no bit can change unnoticed.

    magic            8 bytes
    manifest size    8 bytes, little endian
    manifest SHA-256 32 bytes
    manifest         JSON: kind, format, the size and SHA-256 of every part, and what the kind adds
    parts            each at a multiple of 64 bytes; zeros in between

A file is complete or not there: it is written beside its place and then moved there.
"""

import errno
import hashlib
import json
import os
import reprlib
import secrets
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Buffer, Self

from nnrt_hdi.errors import InvalidFile, InvalidParameter

MAGIC = b"NNRTPART"
FORMAT = 1
ALIGNMENT = 64
# Room for the largest graph (see nnrt_hdi.graph), and parsed in about a second.
MAX_MANIFEST_BYTES = 64 << 20
# What a crash in the middle of writing leaves behind is called so, and is nobody's file.
TEMPORARY_PREFIX = ".nnrt-"
TEMPORARY_SUFFIX = ".tmp"

_SHA256_BYTES = 32
_HEAD_BYTES = len(MAGIC) + 8 + _SHA256_BYTES


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes and their SHA-256. Who makes one with a digest of another's has checked it."""

    # Flat, and of format B.
    data: memoryview
    sha256: bytes

    @classmethod
    def of(cls, data: Buffer) -> Self:
        """The part that holds these bytes, which nobody may change from now on."""
        flat = _flat(data)
        return cls(flat, hashlib.sha256(flat).digest())


def packed(kind: str, about: Mapping[str, Any], parts: Sequence[Part]) -> list[Buffer]:
    """A file, as pieces to be written one after the other. `about` is what the manifest says besides, as JSON.

    Raises InvalidParameter for more than MAX_MANIFEST_BYTES of that.
    """
    manifest = json.dumps(
        {
            "kind": kind,
            "format": FORMAT,
            "parts": [{"size": part.data.nbytes, "sha256": part.sha256.hex()} for part in parts],
            "about": about,
        },
        separators=(",", ":"),
        sort_keys=True,
    ).encode()
    if len(manifest) > MAX_MANIFEST_BYTES:
        raise InvalidParameter(f"its manifest has {len(manifest)} bytes; a file holds at most {MAX_MANIFEST_BYTES}")
    head = MAGIC + len(manifest).to_bytes(8, "little") + hashlib.sha256(manifest).digest()
    pieces: list[Buffer] = [head, manifest]
    end = len(head) + len(manifest)
    for part in parts:
        pieces += [bytes(-end % ALIGNMENT), part.data]
        end += -end % ALIGNMENT + part.data.nbytes
    return pieces


def unpacked(kind: str, data: Buffer) -> tuple[dict[str, Any], tuple[Part, ...]]:
    """What the manifest of a file says besides, and its parts as views of `data`.

    Raises InvalidFile unless it is a whole file of this kind in which every byte is the one that was written.
    """
    view = _flat(data)
    manifest, end = _manifest(view)
    about = _about(kind, manifest)
    parts = []
    for number, (size, sha256) in enumerate(_listed(manifest)):
        start = end + -end % ALIGNMENT
        if size > view.nbytes - start:
            raise InvalidFile(f"it ends within part {number}; it was cut off")
        end_of_part = start + size
        if any(view[end:start]) or hashlib.sha256(view[start:end_of_part]).digest() != sha256:
            raise InvalidFile(f"part {number} is not what was written; the file is damaged")
        parts.append(Part(view[start:end_of_part].toreadonly(), sha256))
        end = end_of_part
    if end != view.nbytes:
        raise InvalidFile(f"{view.nbytes - end} bytes follow its last part; the file is damaged")
    return about, tuple(parts)


def is_packed(data: Buffer) -> bool:
    """Whether bytes begin like a file of this module."""
    return bytes(_flat(data)[: len(MAGIC)]) == MAGIC


def kind_of(data: Buffer) -> str:
    """Which kind of file of this module bytes are. Raises InvalidFile unless they begin like one."""
    manifest, _ = _manifest(_flat(data))
    return str(manifest.get("kind"))


def write(path: Path, pieces: Iterable[Buffer]) -> None:
    """Write a file that is complete when it appears, in place of an earlier one. Raises OSError, and leaves nothing."""
    if path.exists() and not (path.is_file() or path.is_dir()):  # Who may do everything would replace /dev/null.
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    # Not made from the name, which may be as long as names can be.
    beside = path.with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(16)}{TEMPORARY_SUFFIX}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as file:
            for piece in pieces:
                rest = _flat(piece)
                while rest.nbytes:
                    rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def read(path: Path) -> memoryview:
    """The bytes of a file, in memory aligned for any element type. Raises OSError, also for what is no file.

    They are copied, not mapped: who writes into the file later must not change what has been checked.
    """
    # A pipe that nobody writes to would be waited for.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        data = np.empty(status.st_size, np.uint8)
        filled = 0
        while filled < data.size and (count := file.readinto(data[filled:].data)):
            filled += count
    return data[:filled].data.toreadonly()


def read_about(kind: str, path: Path) -> dict[str, Any]:
    """What the manifest of a file says besides. Its parts are neither read nor checked.

    Raises OSError, and InvalidFile unless it begins like a file of this kind.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        size = int.from_bytes(head[len(MAGIC) : len(MAGIC) + 8], "little")
        manifest, _ = _manifest(memoryview(head + file.read(min(size, MAX_MANIFEST_BYTES))))
    return _about(kind, manifest)


def _manifest(view: memoryview) -> tuple[dict[str, Any], int]:
    if view.nbytes < _HEAD_BYTES or bytes(view[: len(MAGIC)]) != MAGIC:
        raise InvalidFile(f"it does not begin with {MAGIC!r}; it is another kind of file, or damaged")
    size = int.from_bytes(view[len(MAGIC) : len(MAGIC) + 8], "little")
    if size > MAX_MANIFEST_BYTES:
        raise InvalidFile(f"its manifest has {size} bytes; at most {MAX_MANIFEST_BYTES} are read")
    if size > view.nbytes - _HEAD_BYTES:
        raise InvalidFile("it ends within its manifest; it was cut off")
    text = view[_HEAD_BYTES : _HEAD_BYTES + size]
    if hashlib.sha256(text).digest() != bytes(view[_HEAD_BYTES - _SHA256_BYTES : _HEAD_BYTES]):
        raise InvalidFile("its manifest is not what was written; the file is damaged")
    try:
        manifest = json.loads(bytes(text))
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"its manifest is not JSON: {error}") from error
    if not isinstance(manifest, dict):
        raise InvalidFile("its manifest is no JSON object")
    return manifest, _HEAD_BYTES + size


def _about(kind: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    if manifest.get("kind") != kind or manifest.get("format") != FORMAT:
        given = ", format ".join(reprlib.repr(manifest.get(key)) for key in ("kind", "format"))
        raise InvalidFile(f"it is of kind {given}; {kind!r}, format {FORMAT} is needed")
    about = manifest.get("about")
    if not isinstance(about, dict):
        raise InvalidFile("its manifest says nothing about it; the file is damaged")
    return about


def _listed(manifest: Mapping[str, Any]) -> list[tuple[int, bytes]]:
    try:
        listed = [(entry["size"], bytes.fromhex(entry["sha256"])) for entry in manifest["parts"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidFile("its manifest lists no parts") from error
    if not all(type(size) is int and size >= 0 for size, _ in listed):
        raise InvalidFile("its manifest lists parts of no size")
    return listed


def _flat(data: Buffer) -> memoryview:
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _sync_directory(path: Path) -> None:
    """Make a renaming last through a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
