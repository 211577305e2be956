"""Limits of the host for a process, from its cgroups and resource limits.

Both versions of cgroups are read as in cgroups(7): /proc/self/cgroup has the process's group in each hierarchy,
/proc/self/mountinfo where the hierarchies are; every group up to the root may set a limit.
"""

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc/self")
# Version 1 writes "no limit" as the largest multiple of a page.
_LEAST_UNLIMITED = 1 << 62


class Limit(NamedTuple):
    """Limit of a resource, and the file or setting that imposes it."""

    value: int
    source: str


class CoreLimit(NamedTuple):
    """Limit of cores, and the file or setting that imposes it."""

    value: float
    source: str


def thread_limit(process: Path = _PROC) -> Limit | None:
    """Return how many threads the process may have in all, or None without a limit."""
    own = len(list((process / "task").iterdir()))
    limits = []
    for group in _groups("pids", process):
        most, current = _number(group / "pids.max"), _number(group / "pids.current")
        if most is not None and current is not None:
            limits.append(Limit(max(most - current, 0) + own, str(group / "pids.max")))
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:
        limits.append(Limit(soft, "ulimit -u"))
    return min(limits, default=None)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of file descriptors to the hard one, and return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # Even root gets no more than fs.nr_open.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def memory_limit(process: Path = _PROC) -> Limit:
    """Return how many bytes the process may use if other processes use none."""
    machine = Limit(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "the machine's memory")
    limits = [machine]
    for group in _groups("memory", process):
        for name in ("memory.max", "memory.limit_in_bytes"):
            most = _number(group / name)
            if most is not None and most < _LEAST_UNLIMITED:
                limits.append(Limit(most, str(group / name)))
    return min(limits)


def core_limit(process: Path = _PROC) -> CoreLimit:
    """Return how many cores the process may keep busy."""
    limits = [_affinity()]
    for group in _groups("cpu", process):
        # Version 2 has both numbers in one file. No quota is "max", or -1 in version 1.
        texts = _lines(group / "cpu.max") or _lines(group / "cpu.cfs_quota_us") + _lines(group / "cpu.cfs_period_us")
        quota, *period = " ".join(texts).split() or [""]
        if quota.isdecimal() and period:
            limits.append(CoreLimit(int(quota) / int(period[0]), f"the quota of {group}"))
    return min(limits)


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _affinity() -> CoreLimit:
    if (count := processors()) < (os.cpu_count() or 1):
        return CoreLimit(count, "its affinity (taskset -p)")
    return CoreLimit(os.cpu_count() or 1, "the machine's cores")


def _groups(controller: str, process: Path) -> Iterator[Path]:
    """Yield the process's cgroups that may limit what a controller counts, up to the roots."""
    mounts = list(_mounts(process))
    for line in _lines(process / "cgroup"):
        _, controllers, place = line.split(":", 2)
        kind = "cgroup" if controllers else "cgroup2"
        if controllers and controller not in controllers.split(","):
            continue
        for mount in mounts:
            if mount.kind == kind and (not controllers or controller in mount.options):
                inner = Path("/", place).relative_to("/")
                if mount.root != "/":  # A container sees its own group as root.
                    with suppress(ValueError):
                        inner = Path("/", place).relative_to(mount.root)
                yield from (mount.path / part for part in (inner, *inner.parents))


class _Mount(NamedTuple):
    kind: str
    root: str
    path: Path
    options: frozenset[str]


def _mounts(process: Path) -> Iterator[_Mount]:
    for line in _lines(process / "mountinfo"):
        first, _, last = line.partition(" - ")
        fields, (kind, _, options) = first.split(), last.split(maxsplit=2)
        if kind in ("cgroup", "cgroup2"):
            yield _Mount(kind, fields[3], Path(fields[4]), frozenset(options.split(",")))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # Another system, or a hidden /proc.
        return []


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max", or no such limit.
        return None
