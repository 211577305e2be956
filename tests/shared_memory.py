"""Counts of this process' descriptors and mappings of tensors."""

import os
from pathlib import Path

from waiting import until

_NAME = "/memfd:nnrt-tensor"


def held() -> tuple[int, int]:
    """Return this process' numbers of descriptors and of mappings of tensors."""
    return held_descriptors(), Path("/proc/self/maps").read_text().count(_NAME)


def held_descriptors() -> int:
    """Return only the number of descriptors, which is faster."""
    return descriptors_of(_NAME)


def descriptors_of(name: str) -> int:
    """Return this process' number of descriptors of files with `name` in their names."""
    with os.scandir("/proc/self/fd") as descriptors:
        return sum(name in _target(fd) for fd in descriptors)


def wait_until_held(wanted: tuple[int, int]) -> None:
    """Wait until these numbers are left: a run frees its tensors shortly after it has returned its result."""
    until(lambda: held() == wanted, held)


def _target(fd: os.DirEntry[str]) -> str:
    try:
        return os.readlink(fd)  # noqa: PTH115  # Asked for twice a test; a Path takes twice as long.
    except OSError:  # The descriptor of this listing, or one that another thread has closed.
        return ""
