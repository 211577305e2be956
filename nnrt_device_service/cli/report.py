"""Command `nnrt-device report`."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from nnrt_device_service.cli.fleet import on_fleet, resolve_state_directory
from nnrt_device_service.fleet.process import Process
from nnrt_device_service.fleet.shown import daemon_row
from nnrt_device_service.fleet.state_directory import Record, StateDirectory
from nnrt_device_service.reports.archive import file_name, pack, write_archive
from nnrt_device_service.reports.hidden import hide_values, secret_values
from nnrt_device_service.reports.outside import daemons, end_of, host_parts, is_daemon, request_report, request_stacks
from nnrt_device_service.reports.parts import as_json
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed


class _Subject(NamedTuple):
    """Subject of a report: a process, a device in a state directory, or both."""

    name: str
    pid: int | None
    record: Record | None = None


@click.command()
@click.argument("given", metavar="[NAME or PID]...", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    default=".",
    show_default="here",
    help="Directory for the archives.",
)
@click.option(
    "--timeout-s",
    type=click.FloatRange(0.0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds that a daemon gets to answer. After that the report has data from the host, and the stacks.",
)
@on_fleet
def report(state_dir: Path | None, given: Sequence[str], output: Path, timeout_s: float) -> None:
    """Write an archive with all that a bug report about a daemon needs.

    NAME is a device of the supervisor, even if its daemon has ended. Without NAME or PID it reports on all of these, or
    else on the unsupervised daemons of this user. The archive has no secrets: no keys, tokens or tensors.
    """
    for subject in _subjects(state_dir, given):
        name = file_name(subject.name)
        path = write_archive(output.absolute(), name, pack(name, _parts(subject, state_dir, timeout_s)))
        click.echo(f"{subject.name}: {path}")


def _subjects(state_dir: Path | None, given: Sequence[str]) -> list[_Subject]:
    """Return the subjects to report on. Raises InvalidParameter for unknown names, OperationFailed if none exists."""
    records = _records(state_dir)
    if unknown := [name for name in given if name not in records and not name.isdecimal()]:
        known = ", ".join(records) or "none"
        raise InvalidParameter(f"no device is called {', '.join(map(repr, unknown))}; there are: {known}")
    named = {name: _recorded_subject(name, record) for name, record in records.items()}
    found = [named[name] if name in named else _Subject(f"process {name}", int(name)) for name in given or named]
    found = found or [_Subject(f"process {pid}", pid) for pid in daemons()]
    if not found:
        raise OperationFailed("no daemon of yours is here; name its process, or its device and the --state-dir")
    return found


def _records(state_dir: Path | None) -> dict[str, Record]:
    try:
        return resolve_state_directory(state_dir).records()
    except NnrtError:
        if state_dir is not None:
            raise
        return {}  # This user has no default state directory.


def _recorded_subject(name: str, record: Record) -> _Subject:
    process = Process.find(record.process) if record.process else None
    if process is None:
        return _Subject(name, None, record)
    process.close()
    return _Subject(name, process.pid, record)


def _parts(subject: _Subject, state_dir: Path | None, timeout_s: float) -> dict[str, str]:
    parts = {}
    if subject.pid is not None:
        if subject.record is None:
            _require_daemon(subject.name, subject.pid)
        parts = _process_parts(subject.name, subject.pid, timeout_s)
    if subject.record is not None:
        parts.update(_fleet_parts(subject.name, subject.record, resolve_state_directory(state_dir)))
    return parts


def _require_daemon(name: str, pid: int) -> None:
    """Raise InvalidParameter if a process is no daemon. Passes a process whose open files this user may not see."""
    process = Path("/proc", str(pid))
    if not process.exists():
        raise InvalidParameter("there is no such process", place=name)
    if os.access(process / "fd", os.R_OK) and not is_daemon(pid):
        raise InvalidParameter(
            "it is no daemon, or of an older version; `nnrt-device ps` shows those there are", place=name
        )


def _process_parts(name: str, pid: int, timeout_s: float) -> dict[str, str]:
    """Return the parts from a daemon, or from the host if it doesn't answer."""
    try:
        parts = request_report(pid, timeout_s)
    except OperationFailed as error:
        if os.geteuid() not in (0, Path("/proc", str(pid)).stat().st_uid):
            raise
        click.echo(f"{name}: {error.message}; the report has what the host knows of it", err=True)
        parts = {"no-answer.txt": f"{error}\n", "stacks.txt": request_stacks(pid)}
    return {**parts, **host_parts(pid)}


def _fleet_parts(name: str, record: Record, directory: StateDirectory) -> dict[str, str]:
    """Return the supervisor's row of a device and the end of the daemon's log file."""
    process = Process.find(record.process) if record.process else None
    try:
        row = daemon_row(record, process, directory)
    finally:
        if process is not None:
            process.close()
    hidden = secret_values(record.spec.environment)
    return {"fleet.json": as_json(row), "log-file.txt": hide_values(hidden, end_of(directory.log_path(name)))}
