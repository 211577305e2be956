"""Parts in a client's files: digested once for a user, and again whenever a file may have changed."""

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from waiting import until

from nnrt_device_service.host.threads import Threads
from nnrt_device_service.memory import shared_files
from nnrt_device_service.memory.constants import ConstantPool
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.memory.shared_files import FileRegion, KnownParts, SharedFile
from nnrt_hdi.errors import InvalidFile, InvalidParameter
from nnrt_hdi.part import Part

DATA = np.random.default_rng(4).bytes(3 << 20)
SHA256 = Part.of(DATA).sha256
HALF = len(DATA) // 2


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody writes to the files here but the tests, which change their sizes or names."""
    monkeypatch.setattr(shared_files, "_SETTLED_NS", -(1 << 62))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"before" + DATA)
    path.chmod(0o600)
    return path


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads("digests")
    yield threads
    threads.close()


def opened(path: Path, user_id: int | None = None) -> SharedFile:
    fd = os.open(path, os.O_RDONLY)
    try:
        return SharedFile(fd, os.getuid() if user_id is None else user_id)
    finally:
        os.close(fd)


class Restoring:
    """Has parts read by sessions of one daemon, and says whether they were digested."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._known = KnownParts()

    def __call__(self, file: SharedFile, *, start: int = 6, by_files: bool = True) -> bool:
        pool = ConstantPool(MemoryBudget(1 << 30))
        pool.check_later([SHA256], self._threads, self._known)
        for offset in (0, HALF):
            pool.write(SHA256, len(DATA), offset, FileRegion(file, start + offset, HALF))
        pool.require_checked([SHA256], by_files=by_files)
        assert bytes(pool._uploads[SHA256].data) == DATA
        return pool._uploads[SHA256].is_digested


@pytest.fixture
def restoring(threads: Threads) -> Restoring:
    return Restoring(threads)


def test_a_part_is_digested_once(restoring: Restoring, path: Path) -> None:
    assert restoring(opened(path))
    assert not restoring(opened(path))
    assert restoring(opened(path), by_files=False)


def test_a_file_that_has_changed(restoring: Restoring, path: Path) -> None:
    file = opened(path)
    assert restoring(file)
    path.write_bytes(b"before" + DATA[:-1] + bytes([DATA[-1] ^ 1]))
    with pytest.raises(InvalidFile, match="another SHA-256"):
        restoring(file)
    path.write_bytes(b"before" + DATA)
    assert restoring(file)
    path.with_name("copy").write_bytes(path.read_bytes())
    assert restoring(opened(path.with_name("copy")))


def time_of_new_file(path: Path) -> int:
    """The time of the file system, which may move in steps."""
    path.write_bytes(b"")
    return path.stat().st_ctime_ns


def test_a_file_that_changes_through_a_mapping(restoring: Restoring, path: Path) -> None:
    """Also where the page was dirty before, so that the file system would take no note of the time."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[10] = mapped[10]
        assert restoring(opened(path))
        until(lambda: time_of_new_file(path.with_name("new")) > path.stat().st_ctime_ns)
        mapped[10] ^= 1
        with pytest.raises(InvalidFile, match="another SHA-256"):
            restoring(opened(path))


def test_another_place_of_the_same_file(restoring: Restoring, path: Path) -> None:
    path.write_bytes(b"before" + DATA + DATA[:6] + DATA[6:])
    assert restoring(opened(path))
    assert restoring(opened(path), start=6 + len(DATA))
    with pytest.raises(InvalidFile, match="another SHA-256"):
        restoring(opened(path), start=0)


def others_may_write(path: Path) -> SharedFile:
    path.chmod(0o620)
    return opened(path)


def of_another_user(path: Path) -> SharedFile:
    return opened(path, os.getuid() + 1)


@pytest.mark.parametrize("file_of", [others_may_write, of_another_user])
def test_files_that_others_may_change(restoring: Restoring, path: Path, file_of: Callable[[Path], SharedFile]) -> None:
    """Without their users' knowing, perhaps so that no time of a change tells."""
    file = file_of(path)
    assert restoring(file)
    assert restoring(file)


def test_a_file_that_has_just_been_written(restoring: Restoring, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may change again before the clock of its file system goes on."""
    monkeypatch.setattr(shared_files, "_SETTLED_NS", 1 << 62)
    assert restoring(opened(path))
    assert restoring(opened(path))


def test_a_part_that_comes_from_elsewhere_too(threads: Threads, path: Path, restoring: Restoring) -> None:
    assert restoring(opened(path))
    pool = ConstantPool(MemoryBudget(1 << 30))
    pool.check_later([SHA256], threads, restoring._known)
    pool.write(SHA256, len(DATA), 0, FileRegion(opened(path), 6, HALF))
    pool.write(SHA256, len(DATA), HALF, bytes(HALF))
    with pytest.raises(InvalidFile, match="another SHA-256"):
        pool.require_checked([SHA256], by_files=True)


def test_a_file_that_ends_too_early(path: Path) -> None:
    pool, file = ConstantPool(MemoryBudget(1 << 30)), opened(path)
    os.truncate(path, HALF)
    with pytest.raises(InvalidFile, match="cut off"):
        pool.write(SHA256, len(DATA), 0, FileRegion(file, 6, len(DATA)))
    pool.write(SHA256, len(DATA), 0, DATA)


def test_what_would_have_to_be_waited_for() -> None:
    """A file system that can only wait, as those of clients' own."""
    with pytest.raises(InvalidParameter, match="regular file"):
        opened(Path("/proc/self/status"))


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_files, "_MOST_KNOWN", 2)
    known = KnownParts()
    for part in (1, 2, 1, 3):
        known.add(part)
    assert [part in known for part in (1, 2, 3)] == [True, False, True]
