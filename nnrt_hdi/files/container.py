"""Container files of parts, in which no bit changes unnoticed.

    magic            8 bytes
    manifest size    8 bytes, little endian
    manifest SHA-256 32 bytes
    manifest         JSON: kind, format, the size and SHA-256 of every part, and what the kind adds
    parts            each at a multiple of 64 bytes; zeros in between

In a directory that many files share, large parts may lie beside them, each once (see `store_directory`). A file is
complete or missing.
"""

import errno
import hashlib
import json
import os
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Buffer

from nnrt_hdi.errors import InvalidFile, InvalidParameter
from nnrt_hdi.files.atomic_write import atomic_write, sync
from nnrt_hdi.files.file_part import FilePart, OpenFile
from nnrt_hdi.mapped_files import reading
from nnrt_hdi.part import SHA256_BYTES, Part
from nnrt_hdi.tensor import flat_bytes

MAGIC = b"NNRTPART"
FORMAT = 1
ALIGNMENT = 64
# Size from which it matters how often a part is read.
LARGE_BYTES = 1 << 20
# Bytes read at a time.
_PIECE_BYTES = 1 << 20
# Bytes written between two checks whether the file is still wanted.
_WRITTEN_BYTES = 16 << 20
# Room for the largest graph (nnrt_hdi.graph); parsed in about a second.
MAX_MANIFEST_BYTES = 64 << 20
# JSON's spelling of surrogates, which are characters only in pairs.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_HEAD_BYTES = len(MAGIC) + 8 + SHA256_BYTES

# Function that returns a part beside the file by size and digest, or raises OSError or InvalidFile.
Fetch = Callable[[int, bytes], Part]


def packed(kind: str, about: Mapping[str, Any], parts: Sequence[Part], beside: Collection[bytes] = ()) -> list[Buffer]:
    """Return a file as consecutive pieces.

    Args:
        kind: The kind of file.
        about: The entries that the kind adds to the manifest, as JSON.
        parts: The parts.
        beside: Digests of parts that lie beside the file and are only named.

    Returns:
        The pieces.

    Raises:
        InvalidParameter: The manifest has more than MAX_MANIFEST_BYTES.
    """
    manifest = json.dumps(
        {
            "kind": kind,
            "format": FORMAT,
            "parts": [
                {"size": part.data.nbytes, "sha256": part.sha256.hex()}
                | ({"beside": True} if part.sha256 in beside else {})
                for part in parts
            ],
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
        if part.sha256 in beside:
            continue
        pieces += [bytes(-end % ALIGNMENT), part.data]
        end += -end % ALIGNMENT + part.data.nbytes
    return pieces


def unpacked(
    kind: str, data: Buffer, fetch: Fetch | None = None, *, checks_large: bool = True
) -> tuple[dict[str, Any], tuple[Part, ...]]:
    """Return the entries that the kind adds to a file's manifest, and the parts as views of `data`.

    Args:
        kind: The expected kind.
        data: The file.
        fetch: Returns parts that lie beside the file.
        checks_large: Whether to check parts of LARGE_BYTES and more. If not, the caller must; smaller ones are copied.

    Returns:
        The entries and the parts.

    Raises:
        InvalidFile: The data is no complete file of this kind, or a byte has changed.
    """
    view = flat_bytes(data)

    def part_at(start: int, size: int, sha256: bytes) -> Part:
        piece = view[start : start + size].toreadonly()
        return Part(piece if checks_large or size >= LARGE_BYTES else memoryview(bytes(piece)), sha256)

    manifest, end = _manifest(view)
    about = _about(kind, manifest)
    return about, _parts(manifest, end, view.nbytes, part_at, fetch, checks_large=checks_large)


def unpacked_from_file(kind: str, path: Path, fetch: Fetch | None = None) -> tuple[dict[str, Any], tuple[Part, ...]]:
    """Return the entries that the kind adds to a file's manifest, and the parts.

    Parts of LARGE_BYTES and more stay in the file, unchecked; whoever receives them must check them.

    Raises:
        OSError: The file can't be read.
        InvalidFile: It is no complete file of this kind, or a byte outside of large parts has changed.
    """
    file = OpenFile(path)

    def read_at(start: int, size: int) -> memoryview:
        memory = np.empty(min(size, max(file.size_bytes - start, 0)), np.uint8).data
        return memory[: file.fill(memory, start)].toreadonly()

    def part_at(start: int, size: int, sha256: bytes) -> Part:
        return FilePart(file, start, size, sha256) if size >= LARGE_BYTES else Part(read_at(start, size), sha256)

    manifest, end = _manifest(read_at(0, _HEAD_BYTES + _manifest_bytes(read_at(0, _HEAD_BYTES))))
    about = _about(kind, manifest)
    return about, _parts(manifest, end, file.size_bytes, part_at, fetch, checks_large=False)


def _parts(
    manifest: Mapping[str, Any],
    end: int,
    size_bytes: int,
    part_at: Callable[[int, int, bytes], Part],
    fetch: Fetch | None,
    *,
    checks_large: bool,
) -> tuple[Part, ...]:
    """Return the parts of a file of `size_bytes` whose manifest ends at `end`. Raises InvalidFile."""
    parts = []
    for number, (size, sha256, is_beside) in enumerate(_listed(manifest)):
        if is_beside:
            if fetch is None:
                raise InvalidFile(f"part {number} is not in it; it belongs into its store")
            parts.append(fetch(size, sha256))
            continue
        start = end + -end % ALIGNMENT
        if size > size_bytes - start:
            raise InvalidFile(f"it ends within part {number}; it was cut off")
        part = part_at(start, size, sha256)
        if any(part_at(end, start - end, b"").data) or len(sha256) != SHA256_BYTES:
            raise damaged(number)
        if checks_large or size < LARGE_BYTES:
            require_whole(number, part)
        parts.append(part)
        end = start + size
    if end != size_bytes:
        raise InvalidFile(f"{size_bytes - end} bytes follow its last part; the file is damaged")
    return tuple(parts)


def require_whole(number: int, part: Part) -> None:
    """Raise InvalidFile if a part doesn't have its digest."""
    digest = hashlib.sha256()
    for start in range(0, part.size_bytes, _PIECE_BYTES):
        digest.update(part.piece(start, _PIECE_BYTES))
    if digest.digest() != part.sha256:
        raise damaged(number)


def damaged(number: int) -> InvalidFile:
    """Return the error for a part that has changed."""
    return InvalidFile(f"part {number} is not what was written; the file is damaged")


def is_packed(data: Buffer) -> bool:
    """Return whether the bytes begin like a container file."""
    return bytes(flat_bytes(data)[: len(MAGIC)]) == MAGIC


def kind_of(data: Buffer) -> str:
    """Return the kind of a container file. Raise InvalidFile if the bytes don't begin like one."""
    manifest, _ = _manifest(flat_bytes(data))
    return str(manifest.get("kind"))


def write(
    path: Path,
    pieces: Iterable[Buffer],
    *,
    owner: str = "file",
    is_private: bool = False,
    check: Callable[[], object] | None = None,
) -> None:
    """Write a file atomically, replacing an earlier one.

    Only its owner may read a private file. `check` is called after every few megabytes and before the file appears; an
    exception ends the writing. `owner` names what a crash leaves; see `atomic_write`.

    Raises:
        OSError: The file can't be written. Nothing is left.
        InvalidFile: A piece is in a mapped file that was shortened. Nothing is left.
    """
    if not is_private:
        require_place(path)
    unsynced = 0
    with atomic_write(path, owner, 0o600 if is_private else 0o666) as file:
        for piece in pieces:
            rest = flat_bytes(piece)
            while rest.nbytes:
                part, rest = rest[:_WRITTEN_BYTES], rest[_WRITTEN_BYTES:]
                with reading(part):
                    file.write(part)
                unsynced += part.nbytes
                if check is not None and unsynced >= _WRITTEN_BYTES:
                    sync(file)
                    check()
                    unsynced = 0
        if check is not None:
            sync(file)
            check()
    _sync_directory(path.parent)


def require_place(path: Path) -> None:
    """Raise OSError if no file can be written at the path; called before the work that makes the file."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a directory; give the name of a file", str(path))
    if path.exists() and not path.is_file():  # Root would replace /dev/null.
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    directory = path.parent
    if not directory.is_dir():
        kind, number = (NotADirectoryError, errno.ENOTDIR) if directory.exists() else (FileNotFoundError, errno.ENOENT)
        raise kind(number, "there is no such directory; make it first", str(directory))
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "files in it can't be made; allow it, or take another one", str(directory))


def read(path: Path) -> memoryview:
    """Return the bytes of a file, aligned for any element type. Raise OSError if it is no regular file.

    They are copied, not mapped: later writes to the file must not change what was checked.
    """
    file = OpenFile(path)
    memory = np.empty(file.size_bytes, np.uint8).data
    return memory[: file.fill(memory, 0)].toreadonly()


def read_about(kind: str, path: Path) -> dict[str, Any]:
    """Return the entries that the kind adds to a file's manifest, without reading the parts.

    Raises:
        OSError: The file can't be read.
        InvalidFile: It doesn't begin like a file of this kind.
    """
    return _about(kind, _read_manifest(path))


def read_beside(path: Path) -> dict[bytes, int]:
    """Return the sizes of the parts that lie beside a file, by digest. Raise OSError or InvalidFile."""
    manifest = _read_manifest(path)
    return {sha256: size for size, sha256, is_beside in _listed(manifest) if is_beside}


def _read_manifest(path: Path) -> Mapping[str, Any]:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        manifest, _ = _manifest(memoryview(head + file.read(_manifest_bytes(memoryview(head)))))
    return manifest


def _manifest_bytes(head: memoryview) -> int:
    """Return the size of the manifest from the head of a file."""
    return min(int.from_bytes(head[len(MAGIC) : len(MAGIC) + 8], "little"), MAX_MANIFEST_BYTES)


def _manifest(view: memoryview) -> tuple[dict[str, Any], int]:
    if view.nbytes < _HEAD_BYTES or bytes(view[: len(MAGIC)]) != MAGIC:
        raise InvalidFile(f"it does not begin with {MAGIC!r}; it is another kind of file, or damaged")
    size = int.from_bytes(view[len(MAGIC) : len(MAGIC) + 8], "little")
    if size > MAX_MANIFEST_BYTES:
        raise InvalidFile(f"its manifest has {size} bytes; at most {MAX_MANIFEST_BYTES} are read")
    if size > view.nbytes - _HEAD_BYTES:
        raise InvalidFile("it ends within its manifest; it was cut off")
    text = view[_HEAD_BYTES : _HEAD_BYTES + size]
    if hashlib.sha256(text).digest() != bytes(view[_HEAD_BYTES - SHA256_BYTES : _HEAD_BYTES]):
        raise InvalidFile("its manifest is not what was written; the file is damaged")
    try:
        words = bytes(text).decode()
        manifest = json.loads(words)
        if _SURROGATE.search(words):
            json.dumps(manifest, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:  # Half of a surrogate pair, which JSON can spell.
        raise InvalidFile(f"its manifest holds text that is not Unicode: {error}") from error
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


def _listed(manifest: Mapping[str, Any]) -> list[tuple[int, bytes, bool]]:
    """Return size and digest of each part, and whether it lies beside the file."""
    try:
        listed = [
            (entry["size"], bytes.fromhex(entry["sha256"]), entry.get("beside", False)) for entry in manifest["parts"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidFile("its manifest lists no parts") from error
    if not all(type(size) is int and size >= 0 for size, _, _ in listed):
        raise InvalidFile("its manifest lists parts of no size")
    if not all(len(sha256) == SHA256_BYTES or is_beside is False for _, sha256, is_beside in listed):
        raise InvalidFile("its manifest lists parts of no digest")
    return listed


def _sync_directory(path: Path) -> None:
    """Sync a directory, so that a renaming survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
