"""Large parts of a store: read through once, and mapped as long as nobody changes them."""

import os
from pathlib import Path

import numpy as np
import pytest
from device_runs import outputs_of
from resident_pages import resident_bytes
from storing_device import device_on, files, graph, origin, prepared, session_of

from nnrt_device_service.memory.constants import ConstantPool, MissingConstants
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.memory.uploads import Bytes
from nnrt_hdi.backend import Origin
from nnrt_hdi.errors import InvalidFile
from nnrt_hdi.files import file_systems, unnamed_file, whole_parts
from nnrt_hdi.files.store_directory import PART_SUFFIX
from nnrt_hdi.files.whole_parts import WholeParts
from nnrt_hdi.graph import Constant
from nnrt_hdi.mapped_files import drop_pages, mapped_file_of
from nnrt_hdi.part import Part

CONTENT = np.random.default_rng(1).bytes(3_000_001)
SHA256 = Part.of(CONTENT).sha256
# Elements of a model whose part has a file of its own.
LARGE = 1 << 19


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "part"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Files that have been read through; a file may be known as whole at once, for nobody writes to it here."""
    found: list[int] = []
    read_through = whole_parts._require_whole

    def counted(descriptor: int, size: int, sha256: bytes) -> None:
        found.append(size)
        read_through(descriptor, size, sha256)

    monkeypatch.setattr(whole_parts, "_require_whole", counted)
    monkeypatch.setattr(whole_parts, "_SETTLED_NS", -(1 << 62))
    return found


def test_a_file_is_read_through_once(path: Path, readings: list[int]) -> None:
    whole = WholeParts(path.parent)
    for _ in range(3):
        part = whole.part(path, len(CONTENT), SHA256)
        assert (bytes(part.data), part.sha256) == (CONTENT, SHA256)
        assert part.data.readonly
    assert readings == [len(CONTENT)]


def test_a_file_that_has_just_been_written_is_read_through_again(
    path: Path, readings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may change again before the clock of its file system goes on."""
    monkeypatch.setattr(whole_parts, "_SETTLED_NS", 1 << 62)
    whole = WholeParts(path.parent)
    for _ in range(2):
        whole.part(path, len(CONTENT), SHA256)
    assert readings == [len(CONTENT)] * 2


@pytest.mark.parametrize("times_stay", [False, True])
def test_a_file_that_has_changed_is_read_through_again(path: Path, readings: list[int], times_stay: bool) -> None:
    """In place, and even where whoever wrote it put back the time of its last change."""
    whole = WholeParts(path.parent)
    whole.part(path, len(CONTENT), SHA256)
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(len(CONTENT) // 2)
        file.write(bytes([CONTENT[len(CONTENT) // 2] ^ 1]))
    if times_stay:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    for _ in range(2):
        with pytest.raises(InvalidFile, match="is not what was written"):
            whole.part(path, len(CONTENT), SHA256)
    path.write_bytes(CONTENT)
    assert bytes(whole.part(path, len(CONTENT), SHA256).data) == CONTENT
    assert len(readings) == 4


@pytest.mark.parametrize("data", [b"", CONTENT[:-1], CONTENT + b"\0", bytes(len(CONTENT))])
def test_another_file(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(InvalidFile, match="is not what was written"):
        WholeParts(path.parent).part(path, len(CONTENT), SHA256)


def test_what_is_no_file(tmp_path: Path) -> None:
    """Nothing is followed, and nothing waited for."""
    whole = WholeParts(tmp_path)
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name in ("directory", "fifo", "empty"):
        with pytest.raises(InvalidFile):
            whole.part(tmp_path / name, 0, Part.of(b"").sha256)
    with pytest.raises(OSError, match="symbolic links"):
        whole.part(tmp_path / "link", 0, Part.of(b"").sha256)


@pytest.mark.parametrize(("kind", "is_read"), [("ext4", False), ("nfs4", True), ("fuse.sshfs", True)])
def test_file_systems_of_networks_are_read(
    path: Path, tmp_path: Path, kind: str, is_read: bool, readings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a mapped file that another host removes the daemon would die."""
    device = path.stat().st_dev
    mounts = tmp_path / "mounts"
    mounts.write_text(f"29 1 {os.major(device)}:{os.minor(device)} / / rw,relatime shared:1 - {kind} somewhere rw\n")
    monkeypatch.setattr(file_systems, "_MOUNTS", mounts)
    whole = WholeParts(tmp_path)
    for _ in range(2):
        assert bytes(whole.part(path, len(CONTENT), SHA256).data) == CONTENT
    assert readings == ([] if is_read else [len(CONTENT)])
    path.write_bytes(bytes(len(CONTENT)))
    with pytest.raises(InvalidFile, match="is not what was written"):
        whole.part(path, len(CONTENT), SHA256)


def test_a_model_from_the_store_outlives_its_files(tmp_path: Path) -> None:
    device, model = device_on(tmp_path / "store"), graph(elements=LARGE)
    assert origin(device, model) is Origin.COMPILED
    with session_of(device) as session:
        made = prepared(device, session, model)
        assert made.origin is Origin.STORED
        for file in (*files(tmp_path / "store"), *(tmp_path / "store").glob(f"*{PART_SUFFIX}")):
            file.unlink()
        (result,) = outputs_of(device, session, session.model(made.model_id), [np.ones(1, "f4")])
        (weights,) = model.constants.values()
        assert weights.data is not None
        np.testing.assert_array_equal(result, 1 + weights.data)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the resident pages of a process are Linux'")
def test_pages_that_are_given_back(tmp_path: Path) -> None:
    """They don't count as memory of the process, and have the same bytes when they are read again."""
    content = np.random.default_rng(2).bytes(4 << 20)
    path = tmp_path / "part"
    path.write_bytes(content)
    part = WholeParts(tmp_path).part(path, len(content), Part.of(content).sha256)
    assert bytes(part.data) == content
    assert resident_bytes(np.asarray(part.data)) == len(content)
    drop_pages([part.data, b"of the heap"])
    assert resident_bytes(np.asarray(part.data)) == 0
    assert bytes(part.data) == content


def test_large_uploads_are_in_files_of_the_store(tmp_path: Path) -> None:
    """The files have no names, so a crash leaves none. Pages that are given back have the same bytes again."""
    pool = ConstantPool(MemoryBudget(1 << 30), str(tmp_path))
    assert not pool.write(SHA256, len(CONTENT), 0, CONTENT[:1_000_000])
    assert pool.write(SHA256, len(CONTENT), 1_000_000, CONTENT[1_000_000:])
    data = acquired(pool)
    assert resident_bytes(data) < 100_000
    assert bytes(data) == CONTENT
    assert resident_bytes(data) > 2_900_000
    drop_pages([data[1_500_000:2_500_000]])
    assert 1_500_000 < resident_bytes(data) < 2_500_000
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("why", ["no directory", "no room", "other hosts"])
def test_uploads_that_no_file_can_hold_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "no room":
        monkeypatch.setattr(os, "fstatvfs", lambda descriptor: os.statvfs_result((1, 1, *[2_000_000] * 8)))
    elif why == "other hosts":
        monkeypatch.setattr(unnamed_file, "is_of_this_host", lambda directory: False)
    pool = ConstantPool(MemoryBudget(1 << 30), str(tmp_path / "gone" if why == "no directory" else tmp_path))
    assert pool.write(SHA256, len(CONTENT), 0, CONTENT)
    data = acquired(pool)
    assert mapped_file_of(data) is None
    assert bytes(data) == CONTENT


def acquired(pool: ConstantPool) -> Bytes:
    found = pool.acquire_all([Constant(SHA256, len(CONTENT))])
    assert not isinstance(found, MissingConstants)
    return found[SHA256]
