"""What the host's cgroups allow, of both versions, inside and outside of containers; and what goes back to it."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from nnrt_hdi.host_limits import core_limit, memory_limit, thread_limit

THREADS = 2
MIB = 1 << 20


class Host:
    """Files of a process and of its cgroups, as Linux has them."""

    def __init__(self, path: Path) -> None:
        self.process, self.mount = path / "proc", path / "cgroup"
        for thread in range(THREADS):
            (self.process / "task" / str(thread)).mkdir(parents=True)

    def place(self, cgroup: str, mountinfo: str) -> None:
        (self.process / "cgroup").write_text(cgroup)
        (self.process / "mountinfo").write_text(mountinfo.format(mount=self.mount))

    def group(self, path: str, **values: int | str) -> None:
        directory = self.mount / path
        directory.mkdir(parents=True, exist_ok=True)
        for name, value in values.items():
            (directory / name.replace("__", ".")).write_text(f"{value}\n")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_version_2(host: Host) -> None:
    """The least of what the groups from the process to the root say."""
    host.place("0::/fleet/device\n", "30 23 0:26 / {mount} rw shared:4 - cgroup2 cgroup2 rw\n")
    host.group("fleet/device", pids__max="max", pids__current=3, memory__max="max")
    host.group("fleet", pids__max=100, pids__current=40, memory__max=512 * MIB)
    threads, memory = thread_limit(host.process), memory_limit(host.process)
    assert threads is not None
    assert threads == (60 + THREADS, str(host.mount / "fleet/pids.max"))
    assert memory == (512 * MIB, str(host.mount / "fleet/memory.max"))


def test_version_1(host: Host) -> None:
    """Each controller has a hierarchy of its own."""
    host.place(
        "9:pids:/fleet\n4:memory,blkio:/\n1:name=systemd:/x\n0::/\n",
        "35 31 0:30 / {mount}/pids rw - cgroup cgroup rw,pids\n"
        "36 31 0:31 / {mount}/memory rw - cgroup cgroup rw,memory,blkio\n"
        "37 31 0:32 / {mount}/unified rw - cgroup2 cgroup2 rw\n",
    )
    host.group("pids/fleet", pids__max=10, pids__current=12)
    host.group("memory", memory__limit_in_bytes=64 * MIB)
    threads = thread_limit(host.process)
    assert threads is not None
    assert threads.value == THREADS
    assert memory_limit(host.process).value == 64 * MIB


@pytest.mark.parametrize("version", [1, 2])
def test_cores(host: Host, version: int) -> None:
    """A tenth of one, by the group above; what has no quota doesn't count."""
    if version == 2:
        host.place("0::/fleet/device\n", "30 23 0:26 / {mount} rw - cgroup2 cgroup2 rw\n")
        host.group("fleet/device", cpu__max="max 100000")
        host.group("fleet", cpu__max="10000 100000")
    else:
        host.place("3:cpu,cpuacct:/fleet/device\n", "36 31 0:31 / {mount} rw - cgroup cgroup rw,cpu,cpuacct\n")
        host.group("fleet/device", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100000)
        host.group("fleet", cpu__cfs_quota_us=10000, cpu__cfs_period_us=100000)
    assert core_limit(host.process) == (0.1, f"the quota of {host.mount / 'fleet'}")


def test_in_a_container(host: Host) -> None:
    """Its own group is mounted as the root of all that it sees."""
    host.place("7:memory:/docker/abc\n", "36 31 0:31 /docker/abc {mount} rw - cgroup cgroup rw,memory\n")
    host.group("", memory__limit_in_bytes=32 * MIB)
    assert memory_limit(host.process).value == 32 * MIB


def test_no_limit(host: Host) -> None:
    """Version 1 writes a number for it."""
    host.place("7:memory:/\n", "36 31 0:31 / {mount} rw - cgroup cgroup rw,memory\n")
    host.group("", memory__limit_in_bytes=9223372036854771712)
    assert memory_limit(host.process).source == "the machine's memory"


def test_no_cgroups(tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    assert memory_limit(tmp_path).value > 0


# Threads that take and free memory as the clients of a daemon have it do, and the MiB that are resident at the end.
_THREADS_THAT_TAKE_MEMORY = """
import os, threading
from pathlib import Path
from nnrt_device_service.host.allocator import give_back_freed_memory, keep_freed_memory

keep_freed_memory()
kept = []

def work():
    taken = [bytearray(size) for _ in range(5) for size in range(1000, 200_000, 1000)]
    kept.extend(taken[::100])

for _ in range(3):
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
give_back_freed_memory()
print(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc has malloc_trim")
def test_freed_memory_goes_back() -> None:
    """Of 400 MB that were taken at a time, with pieces of it still in use everywhere."""
    done = subprocess.run(
        [sys.executable, "-c", _THREADS_THAT_TAKE_MEMORY], capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout) < 100
