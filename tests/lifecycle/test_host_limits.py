"""What the host's cgroups allow, of both versions, inside and outside of containers."""

from pathlib import Path

import pytest

from nnrt_device_service.host.limits import memory_limit, thread_limit

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
