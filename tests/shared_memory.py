"""Counts of what a process holds of the memory of tensors."""

import os
from pathlib import Path

from waiting import until

_NAME = "/memfd:nnrt-tensor"


def held() -> tuple[int, int]:
    """How many descriptors and how many mappings of tensors this process has."""
    return held_descriptors(), Path("/proc/self/maps").read_text().count(_NAME)


def held_descriptors() -> int:
    """The first of both, which costs less."""
    return descriptors_of(_NAME)


def descriptors_of(name: str) -> int:
    """How many descriptors this process has of files with that in their names."""
    with os.scandir("/proc/self/fd") as descriptors:
        return sum(name in _target(fd) for fd in descriptors)


def wait_until_held(wanted: tuple[int, int]) -> None:
    """Wait until that many are left: a run lets go of its tensors just after its result is there."""
    until(lambda: held() == wanted, held)


def _target(fd: os.DirEntry[str]) -> str:
    try:
        return os.readlink(fd)  # noqa: PTH115  # Asked for twice a test; a Path takes twice as long.
    except OSError:  # The one that lists them, or one that another thread has closed.
        return ""
