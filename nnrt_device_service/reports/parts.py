"""Parts of a report that a daemon makes about itself."""

import json
import os
import platform
import resource
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, fields
from importlib import metadata
from pathlib import Path
from typing import Any

from nnrt_device_service.device import Device
from nnrt_device_service.reports.hidden import visible_environment, visible_option
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings
from nnrt_hdi import HDI_VERSION, PROTOCOL_MINOR, __version__
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.host_limits import core_limit, memory_limit, thread_limit

_PROC = Path("/proc/self")
_HOST_FILES = {
    "memory": Path("/proc/meminfo"),
    "load": Path("/proc/loadavg"),
    "pressure of memory": Path("/proc/pressure/memory"),
    "cgroups": _PROC / "cgroup",
    "limits": _PROC / "limits",
    "status": _PROC / "status",
    "huge pages": Path("/sys/kernel/mm/transparent_hugepage/enabled"),
}
_MOST_CHARACTERS = 8192


def as_json(values: object) -> str:
    return json.dumps(values, indent=2, default=str) + "\n"


def stacks() -> str:
    """Return the Python stacks of all threads, without values of variables."""
    threads = {thread.ident: thread for thread in threading.enumerate()}
    texts = []
    for ident, frame in sys._current_frames().items():
        thread = threads.get(ident)
        name = f"{thread.name}, {thread.native_id}" if thread is not None else f"not Python's, {ident}"
        texts.append(f"Thread {name}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(texts)


def settings(given: Settings) -> str:
    """Return the settings as JSON, with the paths of files, but not their content, and secrets of options hidden."""
    values = {entry.name: getattr(given, entry.name) for entry in fields(given)}
    return as_json({**values, "option": [visible_option(pair) for pair in given.option]})


def versions() -> str:
    installed = sorted({(each.name, each.version) for each in metadata.distributions()})
    return as_json(
        {
            "nnrt": __version__,
            "protocol_minor": PROTOCOL_MINOR,
            "hdi": HDI_VERSION,
            "python": sys.version,
            "platform": platform.platform(),
            "packages": dict(installed),
        }
    )


def host() -> str:
    """Return the host's resources and the daemon's limits as JSON."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    values = {
        "pid": os.getpid(),
        "user": os.geteuid(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "core_limit": core_limit(),
        "memory_limit": memory_limit(),
        "thread_limit": thread_limit(),
        "threads": threading.active_count(),
        "descriptors": len(list((_PROC / "fd").iterdir())) if _PROC.exists() else None,
        "descriptor_limits": [soft, hard],
    }
    return as_json({**values, **{name: _beginning(path) for name, path in _HOST_FILES.items()}})


def environment() -> str:
    return as_json(visible_environment(os.environ))


def device(served: Device) -> str:
    """Return the device, its state, its canary and the runs on it as JSON."""
    return as_json(
        {
            "info": asdict(served.info),
            "state": asdict(served.state),
            "stuck": served.stuck,
            "canary": served.canary and asdict(served.canary.state),
            "keeps_models": served.models.stored.has_store,
            "runs on the device": _under_way(served.scheduler.on_device()),
        }
    )


def sessions(served: Device) -> str:
    return as_json([_session(each) for each in served.sessions.all()])


def counters(served: Device) -> str:
    return as_json(asdict(served.counters_snapshot(None)))


def _session(session: Session) -> Mapping[str, Any]:
    return {
        **session.log_fields,
        "role": str(session.identity.role),
        "client": session.client,
        "silent_s": round(time.monotonic() - session.last_heard, 3),
        "held_bytes": session.budget.used_bytes,
        "held": session.bytes_by_kind(),
        "local_connections": session.calls.local_connection_count,
        "models": {model_id: model.shared.size_bytes for model_id, model in list(session.models.items())},
        "under_way": _under_way(list(session.cancellations)),
    }


def _under_way(cancellations: list[Cancellation]) -> list[Mapping[str, Any]]:
    now = time.perf_counter_ns()
    return [
        {
            "on_device_s": None if each.began_ns is None else (now - each.began_ns) / 1e9,
            "is_cancelled": each.is_cancelled,
            "remaining_s": each.remaining,
        }
        for each in cancellations
    ]


def _processor() -> str:
    names = (line.partition(":")[2].strip() for line in _beginning(Path("/proc/cpuinfo")).splitlines())
    return next((name for name in names if "Hz" in name or "Processor" in name or "CPU" in name), platform.machine())


def _beginning(path: Path) -> str:
    try:
        with path.open() as file:
            return file.read(_MOST_CHARACTERS)
    except OSError as error:
        return f"it can't be read: {error.strerror}"
