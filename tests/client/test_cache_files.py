"""The files of caches: every bit of them, crashes while they are written, many writers, full disks."""

import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import warm
from caching import cache_file, cached, origin, outputs, write_cache
from daemon_process import DaemonProcess
from largest_file import largest_file
from networks import identity_model, weighted_model
from part import examples

from nnrt_client import (
    Compilation,
    Device,
    InvalidFile,
    NnrtError,
    Origin,
    Runtime,
    SaveCacheFailed,
    Settings,
)
from nnrt_client.build.cache import FILE_NAME

FLIPS = examples(2000)


@pytest.fixture
def device(restoring_daemon: DaemonProcess) -> Iterator[Device]:
    with Runtime([restoring_daemon.address]) as runtime:
        yield runtime.device()


# ---- disks and processes


def test_disk_full(device: Device, tmp_path: Path) -> None:
    """Built, not written, nothing left; an earlier cache stays."""
    for earlier in (None, 1):
        if earlier:
            write_cache(tmp_path, device, earlier)
        with cached(tmp_path, 2)(device) as compilation, largest_file(4096):
            with pytest.raises(SaveCacheFailed, match="File too large"):
                compilation.build()
            assert compilation.is_built
        assert [path.name for path in tmp_path.rglob("*cache*")] == ([FILE_NAME] if earlier else [])
    assert origin(cached(tmp_path, 1)(device)) is Origin.RESTORED


def test_directory_that_can_be_read_only(device: Device) -> None:
    """A build in a directory where nobody can write, not even root; the cache just isn't written."""
    with cached(Path("/proc"))(device) as compilation:
        with pytest.raises(SaveCacheFailed, match="it was not written"):
            compilation.build()
        assert outputs(compilation)


@pytest.mark.parametrize("how", ["killed", "together"])
@pytest.mark.slow
def test_writers(tmp_path: Path, how: str) -> None:
    """Killed at any moment, or several at once: there is a whole cache of one version, or none."""
    script = Path(__file__).with_name("cache_writers.py")
    done = warm.run(
        [sys.executable, script, how, tmp_path, "1"], capture_output=True, text=True, timeout=60, check=False
    )
    assert not done.returncode, done.stderr


@pytest.mark.slow
def test_cache_that_another_writes_for_ever(restoring_daemon: DaemonProcess, tmp_path: Path) -> None:
    """A writer that holds the lock and stands still costs the cache and not the build."""
    with Runtime([restoring_daemon.address], Settings(build_timeout_s=1.0)) as runtime:
        device = runtime.device()
        folder = tmp_path / f"{device.id:016x}"
        folder.mkdir()
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with cached(tmp_path)(device) as compilation:
                with pytest.raises(SaveCacheFailed, match="build_timeout_s"):
                    compilation.build()
                assert outputs(compilation)
        finally:
            os.close(descriptor)


# ---- every bit


def refused(compilation: Compilation, directory: Path) -> bool:
    try:
        compilation.set_cache(directory, 1)
    except InvalidFile:
        return True
    except NnrtError as error:
        raise AssertionError("refused as something else") from error
    return False


@pytest.mark.slow
def test_any_changed_bit_is_noticed(device: Device, tmp_path: Path) -> None:
    file = write_cache(tmp_path, device, model=identity_model())
    data = bytearray(file.read_bytes())
    chance = np.random.default_rng(0)
    with Compilation.for_cache(device) as compilation:
        for bit in map(int, chance.integers(len(data) * 8, size=FLIPS)):
            data[bit // 8] ^= 1 << bit % 8
            file.write_bytes(data)
            assert refused(compilation, tmp_path), bit
            data[bit // 8] ^= 1 << bit % 8
        for length in map(int, [*range(64), *chance.integers(len(data), size=300)]):
            file.write_bytes(data[:length])
            assert refused(compilation, tmp_path), length
        file.write_bytes(data)
        assert not refused(compilation, tmp_path)


def test_mixture_of_two_writes(device: Device, tmp_path: Path) -> None:
    """The beginning of one cache and the end of another, of the same length and version."""
    one = write_cache(tmp_path, device, model=weighted_model(100, seed=1)).read_bytes()
    (tmp_path / "second").mkdir()
    two = write_cache(tmp_path / "second", device, model=weighted_model(100, seed=2)).read_bytes()
    file = cache_file(tmp_path, device)
    with Compilation.for_cache(device) as compilation:
        changed = [at for at in range(min(len(one), len(two))) if one[at] != two[at]]
        for at in map(int, np.random.default_rng(0).integers(changed[0] + 1, changed[-1], size=200)):
            file.write_bytes(one[:at] + two[at:])
            assert refused(compilation, tmp_path), at
