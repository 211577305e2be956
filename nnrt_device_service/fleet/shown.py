"""How the daemons are, as `nnrt-device ps` shows it, with a supervisor and without one."""

import select
import signal
from collections.abc import Iterator
from typing import Any

from nnrt_device_service.fleet.process import Process
from nnrt_device_service.fleet.state_directory import Record, State, StateDirectory
from nnrt_hdi.errors import InvalidParameter


def shown(record: Record, process: Process | None, directory: StateDirectory) -> dict[str, Any]:
    """A daemon as JSON. `process` is None where it doesn't live."""
    return {
        "name": record.spec.name,
        "state": record.state.value,
        "why": record.why,
        "pid": process.pid if process else None,
        "addresses": list(record.addresses) if process else [],
        "uptime_s": round(process.uptime_s, 3) if process else None,
        "restarts": record.restarts,
        "last_exit": record.last_exit,
        "log": str(directory.log_path(record.spec.name)),
    }


def shown_alone(directory: StateDirectory) -> list[dict[str, Any]]:
    """The daemons that a supervisor has left behind."""
    rows = []
    for record in directory.records().values():
        process = Process.find(record.process) if record.process else None
        if process is None and record.state is not State.FAILED:
            record.state = State.DRAINED if record.is_drained else State.FAILED
            record.why = "" if record.is_drained else "it ended, unsupervised"
        rows.append(shown(record, process, directory))
        if process is not None:
            process.close()
    return rows


def drain_alone(directory: StateDirectory, names: list[str]) -> Iterator[str]:
    """Drain daemons that no supervisor looks after, all where none is named; the names of those that have ended.

    The next supervisor leaves them down. Raises InvalidParameter for names that there are not.
    """
    records = directory.records()
    if unknown := [name for name in names if name not in records]:
        known = ", ".join(records) or "none"
        raise InvalidParameter(f"no device is called {', '.join(map(repr, unknown))}; there are: {known}")
    ending = []
    for name in names or records:
        record = records[name]
        process = Process.find(record.process) if record.process else None
        was_draining, record.is_drained, record.state = record.state is State.DRAINING, True, State.DRAINING
        directory.write(record)
        if process is not None and not was_draining:  # A second signal would cut off what is under way.
            process.send(signal.SIGTERM)
        ending.append((name, process))
    for name, process in ending:
        if process is not None:
            select.select([process], [], [])
            process.close()
        yield name
