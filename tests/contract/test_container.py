"""Files made of parts: no bit changes unnoticed, whatever a manifest says is checked, no file is ever half there."""

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import warm

from nnrt_hdi.errors import InvalidFile, InvalidParameter
from nnrt_hdi.files import atomic_write, container
from nnrt_hdi.files.container import MAGIC, MAX_MANIFEST_BYTES, packed, unpacked
from nnrt_hdi.part import Part

PARTS = [Part.of(data) for data in (b"first", b"", bytes(range(70)))]
SMALL = b"".join(packed("test", {"x": 1}, PARTS))


def with_manifest(manifest: Any, rest: bytes = b"") -> bytes:
    """A file whose digests are right, whatever its manifest says."""
    text = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    head = MAGIC + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text
    return head + (bytes(-len(head) % 64) + rest if rest else b"")


def manifest(parts: Any, **changes: Any) -> dict[str, Any]:
    return {"kind": "test", "format": 1, "parts": parts, "about": {}} | changes


def listed(*parts: bytes) -> list[dict[str, Any]]:
    return [{"size": len(part), "sha256": hashlib.sha256(part).hexdigest()} for part in parts]


def test_what_was_packed_is_unpacked() -> None:
    about, parts = unpacked("test", SMALL)
    assert about == {"x": 1}
    assert parts == tuple(PARTS)
    assert all(part.data.readonly for part in parts)


def test_parts_are_aligned_views() -> None:
    data = bytearray(SMALL)
    _, parts = unpacked("test", data)
    data[SMALL.index(b"first")] = ord("F")
    assert bytes(parts[0].data) == b"First", "a view, not a copy"
    assert SMALL.index(b"first") % 64 == 0
    assert len(SMALL) % 64 == 70 % 64


def test_every_flipped_bit() -> None:
    for bit in range(8 * len(SMALL)):
        damaged = bytearray(SMALL)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidFile):
            unpacked("test", damaged)


def test_large_parts_may_be_left_to_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all else every bit is checked, and copied, so that it stays as it was checked."""
    monkeypatch.setattr(container, "LARGE_BYTES", 70)
    large = SMALL.index(bytes(range(70)))
    for at in range(len(SMALL)):
        damaged = bytearray(SMALL)
        damaged[at] ^= 1
        if at < large:
            with pytest.raises(InvalidFile):
                unpacked("test", damaged, checks_large=False)
        else:
            _, parts = unpacked("test", damaged, checks_large=False)
            damaged[:large] = bytes(large)
            assert parts[:2] == tuple(PARTS[:2])
            with pytest.raises(InvalidFile, match="part 2 is not what was written"):
                container.require_whole(2, parts[2])
    for length in range(len(SMALL)):
        with pytest.raises(InvalidFile):
            unpacked("test", SMALL[:length], checks_large=False)


@pytest.mark.slow
def test_large_parts_may_stay_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All else is read and checked as in memory; and a file that is cut short later is an error, no end."""
    monkeypatch.setattr(container, "LARGE_BYTES", 70)
    path = tmp_path / "file"
    large = SMALL.index(bytes(range(70)))
    for at in range(len(SMALL)):
        damaged = bytearray(SMALL)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        if at < large:
            with pytest.raises(InvalidFile):
                container.unpacked_from_file("test", path)
    for length in range(len(SMALL)):
        path.write_bytes(SMALL[:length])
        with pytest.raises(InvalidFile):
            container.unpacked_from_file("test", path)
    path.write_bytes(SMALL)
    about, parts = container.unpacked_from_file("test", path)
    assert about == {"x": 1}
    assert [(bytes(part.data), part.sha256) for part in parts] == [(bytes(part.data), part.sha256) for part in PARTS]
    container.require_whole(2, parts[2])
    os.truncate(path, len(SMALL) - 1)
    with pytest.raises(InvalidFile, match="cut off"):
        container.require_whole(2, parts[2])
    assert bytes(parts[2].piece(60, 9)) == bytes(range(60, 69))


def test_every_length() -> None:
    for length in range(len(SMALL)):
        with pytest.raises(InvalidFile):
            unpacked("test", SMALL[:length])
    for more in (b"\0", bytes(64), SMALL):
        with pytest.raises(InvalidFile, match="follow its last part"):
            unpacked("test", SMALL + more)


def test_parts_that_changed_places() -> None:
    rest = b"a" * 64 + b"b" * 64
    whole = with_manifest(manifest(listed(rest[:64], rest[64:])), rest)
    assert [bytes(part.data[:1]) for part in unpacked("test", whole)[1]] == [b"a", b"b"]
    with pytest.raises(InvalidFile, match="part 0 is not what was written"):
        unpacked("test", whole[:-128] + rest[::-1])


def test_the_same_part_twice() -> None:
    rest = b"a" * 128
    _, parts = unpacked("test", with_manifest(manifest(listed(rest[:64], rest[64:])), rest))
    assert parts[0] == parts[1]


DIGEST = hashlib.sha256(b"").hexdigest()
HOSTILE: Sequence[tuple[Any, str]] = [
    (b"", "is not JSON"),
    (b"{", "is not JSON"),
    (b"\xff\xfe", "is not JSON"),
    (b"[" * 500_000, "is not JSON|no JSON object"),
    (b'{"a":' * 200_000, "is not JSON|no JSON object"),
    (b"9" * 100_000, "is not JSON|no JSON object"),
    (b"NaN", "no JSON object"),
    ([], "no JSON object"),
    (manifest([], kind="other"), "of kind 'other', format 1; 'test', format 1 is needed"),
    (manifest([], kind=["test"] * 10_000), "is needed"),
    (manifest([], format=2), "format 2"),
    (manifest([], format=None), "format None"),
    (manifest(None), "lists no parts"),
    (manifest(7), "lists no parts"),
    (manifest({"a": 1}), "lists no parts"),
    (manifest("parts"), "lists no parts"),
    (manifest([{}]), "lists no parts"),
    (manifest([{"size": 0, "sha256": 5}]), "lists no parts"),
    (manifest([{"size": 0, "sha256": "x"}]), "lists no parts"),
    (manifest([{"size": 0, "sha256": "00"}]), "ends within part 0"),
    (manifest([{"size": -1, "sha256": DIGEST}]), "of no size"),
    (manifest([{"size": True, "sha256": DIGEST}]), "of no size"),
    (manifest([{"size": 0.0, "sha256": DIGEST}]), "of no size"),
    (manifest([{"size": float("nan"), "sha256": DIGEST}]), "of no size"),
    (manifest([{"size": "0", "sha256": DIGEST}]), "of no size"),
    (manifest([{"size": 10**400, "sha256": DIGEST}]), "ends within part 0"),
    (manifest([{"size": 2**63 - 1, "sha256": DIGEST}]), "ends within part 0"),
    (manifest([{"size": 0, "sha256": "00"}] * 500_000), "ends within part 0"),
    (manifest([], about=None), "says nothing about it"),
    (manifest([], about=[1]), "says nothing about it"),
]


@pytest.mark.parametrize(("hostile", "said"), HOSTILE, ids=range(len(HOSTILE)))
def test_manifests_nobody_would_write(hostile: Any, said: str) -> None:
    with pytest.raises(InvalidFile, match=said) as refusal:
        unpacked("test", with_manifest(hostile))
    assert len(str(refusal.value)) < 300


def test_a_manifest_of_any_size() -> None:
    for size in (2**64 - 1, MAX_MANIFEST_BYTES + 1):
        with pytest.raises(InvalidFile, match="at most"):
            unpacked("test", MAGIC + size.to_bytes(8, "little") + bytes(32))
    with pytest.raises(InvalidParameter, match="at most"):
        packed("test", {"x": "x" * MAX_MANIFEST_BYTES}, [])


# ---- on disk ---------------------------------------------------------------------------------------------------------


def test_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)  # As long as a name can be.
    for content in (b"one", b"", b"three"):
        container.write(path, [content[:1], b"", memoryview(content)[1:]])
        assert bytes(container.read(path)) == content
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("unwanted_at", [1, 2, 3])
def test_writing_ends_between_pieces_that_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unwanted_at: int
) -> None:
    """However large a piece is, and before the file appears."""
    synced: list[int] = []

    def check() -> None:
        if len(synced) == unwanted_at:
            raise InvalidParameter("unwanted")

    monkeypatch.setattr(container, "_WRITTEN_BYTES", 4)
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    with pytest.raises(InvalidParameter, match="unwanted"):
        container.write(tmp_path / "file", [b"01", b"234567", b"89"], check=check)
    assert synced == [6, 10, 10][:unwanted_at]
    assert not list(tmp_path.iterdir())


def test_failing_to_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    container.write(path, [b"old"])

    def pieces() -> Any:
        yield b"new"
        raise KeyError("the caller's mistake")

    with pytest.raises(KeyError):
        container.write(path, pieces())
    directory = tmp_path / "directory"
    directory.mkdir()
    with pytest.raises(IsADirectoryError):
        container.write(directory, [b"new"])
    with pytest.raises(FileNotFoundError):
        container.write(tmp_path / "missing" / "file", [b"new"])
    assert path.read_bytes() == b"old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["directory", "file"]


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("directory", IsADirectoryError),
        ("missing/file", FileNotFoundError),
        ("file/below", NotADirectoryError),
    ],
)
def test_places_for_no_file(place: str, kind: type[OSError], tmp_path: Path) -> None:
    """Found before anything is made, and said of the place that was given."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    container.require_place(tmp_path / "file")
    container.require_place(tmp_path / "new")
    with pytest.raises(kind) as refusal:
        container.require_place(tmp_path / place)
    assert refusal.value.filename in (str(tmp_path / place), str((tmp_path / place).parent))
    with pytest.raises(IsADirectoryError):
        container.require_place(Path())


def test_who_may_read(tmp_path: Path) -> None:
    """A private file its owner, another one whom the umask allows it."""
    before = os.umask(0o027)
    try:
        container.write(tmp_path / "private", [b"mine"], is_private=True)
        container.write(tmp_path / "model", [b"ours"])
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("private", "model")]
    assert modes == [0o600, 0o640]


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ""):
        with pytest.raises(OSError, match=r"no regular file|directory"):
            container.read(tmp_path / name)


# Writes one file after the other into one place, and stops in front of one piece of one of them until it is killed.
WRITER = """
import sys
from pathlib import Path
from nnrt_hdi.files.container import packed, write
from nnrt_hdi.part import Part

path, last, stop = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

def pieces(number):
    head, manifest, zeros, data = packed("test", {"number": number}, [Part.of(bytes([number]) * (1 << 19))])
    slices = [data[at : at + (1 << 16)] for at in range(0, 1 << 19, 1 << 16)]
    for index, piece in enumerate([head, manifest, zeros, *slices]):
        if (number, index) == (last, stop):
            print(number, flush=True)
            sys.stdin.read()
        yield piece

for number in range(256):
    if number == last and stop < 0:
        print(number, flush=True)  # and goes on
    write(path, pieces(number))
"""
IN_THE_MIDDLE = [(last, stop) for last in (0, 1, 3) for stop in (0, 1, 3, 6, 10)]
ANYWHERE = [(last, -1) for last in range(1, 10)]


@pytest.mark.parametrize("kills", [IN_THE_MIDDLE, ANYWHERE], ids=["in the middle", "anywhere"])
@pytest.mark.slow
def test_kill_9(kills: Sequence[tuple[int, int]], tmp_path: Path) -> None:
    """There is always one whole file; one that was begun has a name by which it can be told apart."""
    path = tmp_path / "file"
    for last, stop in kills:
        path.unlink(missing_ok=True)
        command = [sys.executable, "-c", WRITER, str(path), str(last), str(stop)]
        with warm.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout
            assert int(writer.stdout.readline()) == last
            writer.kill()
        left = [entry for entry in tmp_path.iterdir() if entry != path]
        assert stop < 0 or len(left) == 1, "the kill came in the middle"
        for entry in left:
            atomic_write.remove_leftovers(tmp_path, "other")
            assert entry.exists()
            atomic_write.remove_leftovers(tmp_path, "file")
            assert not entry.exists()
        if last == 0:
            assert not path.exists()
            continue
        about, (part,) = unpacked("test", container.read(path))
        number = about["number"]
        assert number >= last - 1
        assert stop < 0 or number == last - 1
        assert bytes(part.data) == bytes([number]) * (1 << 19)
