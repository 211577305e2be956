"""What a process holds of the memory of tensors."""

import time
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 20.0
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
    wait_for(lambda: held() == wanted, held)


def wait_for(wanted: Callable[[], bool], state: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not wanted():
        assert time.monotonic() < deadline, f"it did not come to what was waited for: {state()}"
        time.sleep(0.005)


def _target(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except OSError:  # The one that lists them, or one that another thread has closed.
        return ""
