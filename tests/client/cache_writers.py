"""Program whose forked processes write the same cache: killed at random moments, or all at once.

Usage: `python cache_writers.py killed|together DIRECTORY SEED`. test_cache.py runs it as a process, because it forks.
"""

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from nnrt_client.build.cache import CacheDirectory
from nnrt_hdi.backend import Capabilities, DeviceInfo, ModelConfig
from nnrt_hdi.enums import DataType, DeviceType
from nnrt_hdi.files.compiled import CompiledModel, Target
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import TensorSpec

INFO = DeviceInfo("device", "vendor", DeviceType.CPU, Capabilities(), "backend", "1")
DEVICE: Any = SimpleNamespace(name="device_vendor_v2_1", id=7, info=INFO)
SPEC = TensorSpec(DataType.FLOAT32, (1,))
PART_BYTES = 300_000
KILLS = 40
WRITERS = 4
WRITES_EACH = 25


def compiled(version: int) -> CompiledModel:
    """Return a compiled model whose bytes all depend on its version."""
    parts = (Part.of(bytes([version % 251]) * PART_BYTES), Part.of(bytes([version % 241]) * 100))
    return CompiledModel(
        Target.of(INFO, DEVICE.name), b"\1" * 32, ModelConfig(), (SPEC,), (SPEC,), version, parts, float(version)
    )


def write(directory: Path, version: int) -> None:
    CacheDirectory(directory, version).store(DEVICE, compiled(version), lambda: 30.0)


def require_whole(directory: Path) -> int | None:
    """Check that the cached model is complete, and return its version, or None without a cache.

    A complete model's bytes all belong to one version.
    """
    file = CacheDirectory(directory, 0).file(DEVICE)
    if not file.exists():
        return None
    there = CompiledModel.unpacked(file.read_bytes())
    assert there == compiled(there.version)
    return there.version


def writer(directory: Path, first: int, count: int, life_s: float = 0.0) -> int:
    """Fork a process that writes `count` versions, and return its process id.

    With `life_s` the kernel kills the process after that much CPU time, by a signal without a handler. As with SIGKILL,
    the process runs no more code after it.
    """
    pid = os.fork()
    if not pid:
        signal.setitimer(signal.ITIMER_PROF, life_s)
        try:
            for version in range(first, first + count):
                write(directory, version)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return pid


def killed(directory: Path, seed: int) -> None:
    """Check that each kill leaves a complete cache or none, and never an older version."""
    moments = np.random.default_rng(seed)
    highest, left = -1, 0
    for round_ in range(KILLS):
        pid = writer(directory, round_ * 1000, 1000, moments.uniform(0.001, 0.02))
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGPROF
        version = require_whole(directory)
        assert version is None or version >= highest
        highest = highest if version is None else version
        left += len(list(directory.rglob("*.tmp")))
    write(directory, KILLS * 1000)
    assert require_whole(directory) == KILLS * 1000
    assert not list(directory.rglob("*.tmp"))
    print("kills that left something half written:", left)


def together(directory: Path, seed: int) -> None:
    """Check that a reader always finds a complete cache while several processes write it."""
    write(directory, 0)
    pids = {writer(directory, first * WRITES_EACH, WRITES_EACH) for first in range(WRITERS)}
    while pids:
        assert require_whole(directory) is not None
        pid, status = os.waitpid(-1, os.WNOHANG)
        assert not status
        pids.discard(pid)
    assert not list(directory.rglob("*.tmp"))


if __name__ == "__main__":
    {"killed": killed, "together": together}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
