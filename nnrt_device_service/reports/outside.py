"""Reports made outside the daemon: parts that the daemon sends, and parts from the host if it doesn't answer."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nnrt_device_service.host.peer import peer_of
from nnrt_device_service.reports.archive import MOST_BYTES, unpack
from nnrt_device_service.reports.reporter import SOCKET_NAME, STACKS_NAME
from nnrt_hdi.errors import InvalidFile, OperationFailed

_ABSTRACT_SOCKETS = Path("/proc/net/unix")
# Seconds to wait for the stacks of a stuck process, and seconds without change after which they are complete.
_STACKS_S, _WHOLE_S = 3.0, 0.2
_PIECE_BYTES = 1 << 16
_LOG_BYTES = 1 << 20


def daemons() -> list[int]:
    """Return the process ids of this host's daemons that give reports to this user."""
    found = []
    for name in _sockets(SOCKET_NAME.format(pid="")[:-1]):
        pid = name.removeprefix(SOCKET_NAME.format(pid="")[:-1]).partition("-")[0]
        with suppress(OSError):
            if pid.isdecimal() and os.geteuid() in (0, Path("/proc", pid).stat().st_uid):
                found.append(int(pid))
    return sorted(set(found))


def request_report(pid: int, timeout_s: float) -> dict[str, str]:
    """Ask a daemon for its report and return the parts. Raises OperationFailed if it doesn't answer."""
    why = "it gives no reports: it is of another user, of an older version, or no daemon"
    for name in _sockets(SOCKET_NAME.format(pid=pid)):
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(timeout_s)
                connection.connect(b"\0" + name.encode())
                if peer_of(connection).pid == pid:  # Another process may have bound such a name.
                    return unpack(b"".join(_received(connection, timeout_s)))
        except (OSError, InvalidFile) as error:
            why = f"it did not give one within {timeout_s:g} s: {error}"
    raise OperationFailed(why, place=f"process {pid}")


def is_daemon(pid: int) -> bool:
    """Return whether a process gives reports, or at least has the memory file to which a daemon writes its stacks."""
    return any(_sockets(SOCKET_NAME.format(pid=pid))) or _stacks_file(Path("/proc", str(pid))) is not None


def host_parts(pid: int) -> dict[str, str]:
    """Return the report parts about a process that /proc provides."""
    process = Path("/proc", str(pid))
    parts = {f"host/{name}": _text(process / name) for name in ("status", "limits", "cgroup", "io")}
    threads = (f"{task.name} {_text(task / 'comm').strip()}: {_text(task / 'wchan')}" for task in _tasks(process))
    return {**parts, "host/threads": "\n".join(threads) + "\n"}


def request_stacks(pid: int) -> str:
    """Make a daemon write the stacks of its threads and return them. Works even if its Python code is stuck."""
    process = Path("/proc", str(pid))
    stacks = _stacks_file(process)
    if stacks is None or not _handles(process, signal.SIGUSR2):
        return "it has nowhere to write them\n"
    os.kill(pid, signal.SIGUSR2)
    deadline, written, since = time.monotonic() + _STACKS_S, "", time.monotonic()
    while time.monotonic() < deadline and not (written and time.monotonic() - since > _WHOLE_S):
        if (now := _text(stacks)) != written:
            written, since = now, time.monotonic()
        time.sleep(_WHOLE_S / 10)
    return written or "it did not write them: it is stopped, or the host can't go on with it\n"


def end_of(log: Path) -> str:
    """Return the last MiB of a log file."""
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - _LOG_BYTES, 0))
            return file.read(_LOG_BYTES).decode(errors="replace")
    except OSError as error:
        return f"it can't be read: {error.strerror}\n"


def _sockets(beginning: str) -> Iterator[str]:
    """Yield the names of the host's abstract sockets that begin with `beginning`."""
    for line in _text(_ABSTRACT_SOCKETS).splitlines():
        name = line.rpartition(" ")[2].removeprefix("@")
        if name.startswith(beginning):
            yield name


def _received(connection: socket.socket, timeout_s: float) -> Iterator[bytes]:
    deadline, size = time.monotonic() + timeout_s, 0
    while size < MOST_BYTES and (piece := connection.recv(_PIECE_BYTES)):
        size += len(piece)
        yield piece
        connection.settimeout(max(deadline - time.monotonic(), 0.001))


def _stacks_file(process: Path) -> Path | None:
    return next((link for link in _entries(process / "fd") if STACKS_NAME in _target(link)), None)


def _handles(process: Path, number: signal.Signals) -> bool:
    """Return whether the process handles a signal, so that the signal doesn't end it."""
    caught = (line.partition(":")[2] for line in _text(process / "status").splitlines() if line.startswith("SigCgt"))
    return bool(int(next(caught, "0"), 16) >> (number - 1) & 1)


def _tasks(process: Path) -> list[Path]:
    return sorted(_entries(process / "task"))


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        return f"it can't be read: {error.strerror}\n"
