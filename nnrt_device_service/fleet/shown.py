"""Rows of `nnrt-device ps`, and commands for daemons without a supervisor."""

import select
import signal
from collections.abc import Iterator
from typing import Any

from nnrt_device_service.fleet.process import Process
from nnrt_device_service.fleet.state_directory import Record, State, StateDirectory
from nnrt_hdi.errors import InvalidParameter


def daemon_row(record: Record, process: Process | None, directory: StateDirectory) -> dict[str, Any]:
    """Return the row of a daemon as JSON. `process` is None if the daemon doesn't run."""
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


def unsupervised_rows(directory: StateDirectory) -> list[dict[str, Any]]:
    """Return the rows of the daemons that an ended supervisor left behind."""
    rows = []
    for record in directory.records().values():
        process = Process.find(record.process) if record.process else None
        if process is None and record.state is not State.FAILED:
            record.state = State.DRAINED if record.is_drained else State.FAILED
            record.why = "" if record.is_drained else "it ended, unsupervised"
        rows.append(daemon_row(record, process, directory))
        if process is not None:
            process.close()
    return rows


def drain_unsupervised(directory: StateDirectory, names: list[str]) -> Iterator[str]:
    """Drain unsupervised daemons and yield the name of each when it has ended. No names means all.

    The next supervisor doesn't start them again. Raises InvalidParameter for unknown names.
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
        if process is not None and not was_draining:  # A second SIGTERM would abort the work in progress.
            process.send(signal.SIGTERM)
        ending.append((name, process))
    for name, process in ending:
        if process is not None:
            select.select([process], [], [])
            process.close()
        yield name
