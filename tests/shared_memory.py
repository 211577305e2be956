"""Counts of what a process holds of the memory of tensors."""

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
    return sum(name in _target(fd) for fd in Path("/proc/self/fd").iterdir())


def wait_until_held(wanted: tuple[int, int]) -> None:
    """Wait until that many are left: a run lets go of its tensors just after its result is there."""
    until(lambda: held() == wanted, held)


def _target(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except OSError:  # The one that lists them, or one that another thread has closed.
        return ""
