"""Checks of `nnrt doctor` on this host: the client's resources, and settings that affect its speed."""

import os
import platform
import resource
import stat
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from urllib.request import proxy_bypass

from nnrt_client.cli.findings import Finding, advise, ok, problem, run_checks
from nnrt_client.cli.printing import format_bytes
from nnrt_client.settings import Settings
from nnrt_hdi import __version__
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.host_limits import core_limit, memory_limit, thread_limit
from nnrt_hdi.shared_memory import SharedMemory

# A session needs about ten threads and descriptors, a large tensor one or two descriptors more.
_FEW_DESCRIPTORS, _FEW_THREADS = 256, 64
_LITTLE_MEMORY = 1 << 30
_FEW_CORES = 2
# Environment variables in which gRPC looks for a proxy.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
# Environment variables of gRPC: values that slow it down or crash it (None: any value), and their effect.
_COSTLY = {
    "GRPC_VERBOSITY": (("debug", "info"), "gRPC logs every step"),
    "GRPC_TRACE": (None, "gRPC logs every step"),
    "GRPC_ENABLE_FORK_SUPPORT": (("1", "true"), "children of a process with runs under way crash now and then"),
}
_PROC, _SYS = Path("/proc"), Path("/sys")


def host_findings(addresses: Sequence[str], settings: Settings) -> list[Finding]:
    """Check this host as a client of the daemons at these addresses."""
    return run_checks(
        {
            "versions": _versions,
            "environment": _environment,
            "proxy": lambda: _proxy(addresses),
            "token": lambda: _token(settings.token_file),
            "descriptors": _descriptors,
            "threads": _threads,
            "memory": _memory,
            "cores": check_cores,
            "shared memory": _shared_memory,
            "huge pages": check_huge_pages,
        }
    )


def _versions() -> Iterator[Finding]:
    libraries = ", ".join(f"{name} {version(name)}" for name in ("grpcio", "protobuf", "numpy"))
    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield ok("versions", f"nnrt {__version__}, {python}, {libraries}; {platform.system()} {platform.release()}")


def _environment() -> Iterator[Finding]:
    for name, (values, cost) in _COSTLY.items():
        value = os.environ.get(name, "").lower()
        if value and (values is None or value in values):
            yield advise("environment", f"{name}={value}: {cost}", f"unset {name}")


def _proxy(addresses: Sequence[str]) -> Iterator[Finding]:
    variable = next((name for name in _PROXIES if os.environ.get(name)), None)
    hosts = {address.rpartition(":")[0].strip("[]") for address in addresses if not address.startswith("unix:")}
    through = sorted(host for host in hosts if not proxy_bypass(host))
    if variable and through:
        found = f"gRPC goes through the proxy of {variable} to {', '.join(through)}"
        none = ",".join(filter(None, (os.environ.get("no_proxy"), *through)))
        yield advise("proxy", found, f"export no_proxy={none}")
    else:
        yield ok("proxy", "none is in the way")


def _token(path: str) -> Iterator[Finding]:
    if not path:
        yield ok("token", "none is given")
        return
    if Path(path).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        yield advise("token", f"others on this host may read {path}", f"chmod 600 {path}")
    else:
        yield ok("token", f"only its owner may read {path}")


def _descriptors() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        yield ok("descriptors", "as many as there are")
        return
    used = len(list((_PROC / "self/fd").iterdir())) if (_PROC / "self/fd").exists() else 0
    found = f"{used} of {soft} in use"
    if soft - used < _FEW_DESCRIPTORS:
        more = "unlimited" if hard == resource.RLIM_INFINITY else hard
        yield advise("descriptors", f"{found}; each large tensor that is shared takes one", f"ulimit -n {more}")
    else:
        yield ok("descriptors", found)


def _threads() -> Iterator[Finding]:
    limit = thread_limit() if (_PROC / "self/task").exists() else None
    if limit is not None and limit.value < _FEW_THREADS:
        found = f"this process may have {limit.value}, by {limit.source}"
        yield advise("threads", found, f"raise {limit.source}: each session takes about ten")
    else:
        yield ok("threads", "no limit is near" if limit is None else f"up to {limit.value}, by {limit.source}")


def _memory() -> Iterator[Finding]:
    limit = memory_limit()
    found = f"up to {format_bytes(limit.value)}, by {limit.source}"
    if limit.value < _LITTLE_MEMORY:
        yield advise("memory", found, f"raise {limit.source}: models and tensors pass through the client's memory")
    else:
        yield ok("memory", found)


def check_cores(system: Path = _SYS, processes: Path = _PROC) -> Iterator[Finding]:
    """Check how many CPU cores the client has, their clock governor, and how busy they are."""
    limit = core_limit()
    found = f"{limit.value:g}, by {limit.source}"
    if limit.value < _FEW_CORES:
        yield advise("cores", found, "give it two or more: replies are read while the application computes")
    else:
        yield ok("cores", found)
    governors = {path.read_text().strip() for path in system.glob("devices/system/cpu/cpu*/cpufreq/scaling_governor")}
    if "powersave" in governors:
        found = "cores save power: a core that was idle begins a run slowly"
        yield advise("clock rate", found, "cpupower frequency-set -g performance")
    elif governors:
        yield ok("clock rate", f"governor {', '.join(sorted(governors))}")
    waiting = _pressure(processes / "pressure/cpu")
    if waiting is not None and waiting > 25:
        found = f"tasks waited for a core in {waiting:.0f} % of the last ten seconds"
        yield advise("load", found, "top(1) shows which processes use the cores; runs wait for them as well")
    elif waiting is not None:
        yield ok("load", f"tasks waited for a core in {waiting:.0f} % of the last ten seconds")


def _pressure(path: Path) -> float | None:
    """Return the percentage of the last ten seconds in which a task waited, or None without kernel support."""
    try:
        some = path.read_text().splitlines()[0].split()
    except OSError:
        return None
    return float(some[1].removeprefix("avg10="))


def _shared_memory() -> Iterator[Finding]:
    try:
        SharedMemory.allocate(1 << 16).close()
    except NnrtError as error:
        yield problem(
            "shared memory", error.message, "tensors travel over gRPC without it; let the process have memfds"
        )
    else:
        yield ok("shared memory", "memory can be shared with daemons on this host; nothing of it is locked (ulimit -l)")


def check_huge_pages(system: Path = _SYS) -> Iterator[Finding]:
    """Check whether large arrays may use huge pages."""
    path = system / "kernel/mm/transparent_hugepage/enabled"
    if not path.exists():
        yield ok("huge pages", "the kernel has none")
    elif "[never]" in path.read_text():
        found = "large arrays lie in small pages, which are slow to touch first"
        yield advise("huge pages", found, f"echo madvise > {path}")
    else:
        yield ok("huge pages", "numpy's large arrays may lie in them")
