"""A control group for a process of a test, if the host lets tests create one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import until

_ROOT = Path("/sys/fs/cgroup")


class Cgroup:
    """Control group (version 1 or 2) that limits one resource."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, pid: int) -> None:
        """Move a process with all its threads into the group."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def set(self, name: str, value: int | str) -> None:
        (self.path / name).write_text(str(value))

    def get(self, name: str) -> int:
        return int((self.path / name).read_text())


@contextmanager
def cgroup(controller: str) -> Iterator[Cgroup]:
    """Create a cgroup, and remove it after its processes have ended.

    Skips the test if the host forbids it.
    """
    parent = _ROOT / controller if (_ROOT / controller).is_dir() else _ROOT
    path = parent / f"nnrt-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"the host lets this user make no cgroup: {error}")
    try:
        if not (path / f"{controller}.max").exists() and not list(path.glob(f"{controller}.*")):
            pytest.skip(f"the host gives this user's cgroups no {controller} controller")
        yield Cgroup(path)
    finally:
        until(lambda: not (path / "cgroup.procs").read_text())
        path.rmdir()
