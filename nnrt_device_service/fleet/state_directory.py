"""State directory of a supervisor: records and logs of the daemons, which outlive the supervisor, and its sockets."""

import fcntl
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from enum import Enum
from pathlib import Path
from typing import IO, Any

from nnrt_device_service.fleet.process import ProcessIdentity
from nnrt_device_service.fleet.spec import DeviceSpec
from nnrt_hdi.errors import InvalidPath, OperationForbidden
from nnrt_hdi.files.fleet_directory import READY, RECORDS

_log = logging.getLogger(__name__)

# The path in a sockaddr_un has 108 bytes, the last of which is zero.
_MAX_SOCKET_BYTES = 107
# A log that is longer when its daemon starts is renamed to NAME.log.1.
_LONG_LOG_BYTES = 16 << 20


class State(str, Enum):
    """State of a daemon, with the text that `nnrt-device ps` shows."""

    STARTING = "starting"
    READY = READY
    DRAINING = "draining"
    DRAINED = "drained"
    BACKING_OFF = "backing off"
    FAILED = "failed"


@dataclass(slots=True)
class Record:
    """Record of a daemon, which its supervisor writes to the state directory."""

    spec: DeviceSpec
    state: State = State.STARTING
    # Why the daemon failed or is restarted, or why its device is suspended; empty otherwise.
    why: str = ""
    process: ProcessIdentity | None = None
    addresses: tuple[str, ...] = ()
    restarts: int = 0
    # Last exit code, negative for a signal; None if the daemon hasn't ended or the code is unknown.
    last_exit: int | None = None
    # The daemon stays down until a user restarts it.
    is_drained: bool = False
    # The daemon reported that other daemons may use the device at the same time.
    is_shared: bool = False

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "process": self.process}

    @staticmethod
    def from_json(value: dict[str, Any]) -> "Record":
        """Make a record from the result of `as_json` of any version. Raises TypeError, KeyError or ValueError."""
        known = {entry.name: value[entry.name] for entry in fields(Record) if entry.name in value}
        known["spec"] = DeviceSpec.from_json(value["spec"])
        known["state"] = State(value["state"])
        known["process"] = ProcessIdentity(*value["process"]) if value["process"] else None
        known["addresses"] = tuple(value["addresses"])
        return Record(**known)


class StateDirectory:
    """State directory, which only its owner may use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records = path / RECORDS
        self._logs = path / "logs"
        self.reports = path / "reports"
        self.control = path / "control"
        self.notify = path / "notify"
        self._place = f"--state-dir {str(path)!r}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the only supervisor during the block. Makes the directory if it is missing.

        Raises InvalidPath if the directory can't be used, and OperationForbidden if another supervisor has the lock.
        """
        if len(os.fsencode(self.control)) > _MAX_SOCKET_BYTES:
            raise InvalidPath(
                f"sockets in it would have longer paths than {_MAX_SOCKET_BYTES} bytes; use a shorter one",
                place=self._place,
            )
        with self.usable():
            for directory in (self.path, self._records, self._logs, self.reports):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            about = self.path.stat()
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(lock, "r+b", buffering=0) as file:
            if about.st_uid != os.geteuid() or about.st_mode & 0o077:
                raise InvalidPath("others than you may use it; take one of mode 0700 that is yours", place=self._place)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise OperationForbidden(
                    f"the supervisor with pid {file.read().decode().strip() or '?'} looks after the daemons here; stop"
                    " it, or use another directory",
                    place=self._place,
                ) from error
            with self.usable():
                file.truncate()
                file.write(f"{os.getpid()}\n".encode())
            yield

    @contextmanager
    def usable(self) -> Iterator[None]:
        """Turn an OSError of the block, such as that of a full disk, into InvalidPath."""
        try:
            yield
        except OSError as error:
            raise InvalidPath(f"it can't be used: {error.strerror}", place=self._place) from error

    def records(self) -> dict[str, Record]:
        """Return the readable records by device name. Skips records that can't be read."""
        records = {}
        with suppress(OSError):
            for path in sorted(self._records.glob("*.json")):
                with suppress(OSError, TypeError, KeyError, ValueError):
                    records[path.stem] = Record.from_json(json.loads(path.read_text()))
        return records

    def write(self, record: Record) -> None:
        """Write a daemon's record. Logs a failure, such as a full disk: the daemon stays supervised."""
        path = self._records / f"{record.spec.name}.json"
        new = path.with_suffix(".new")
        try:
            new.write_text(json.dumps(record.as_json()))
            new.replace(path)
        except OSError as error:
            _log.error("the record of %s can't be written: %s", record.spec.name, error)

    def remove(self, name: str) -> None:
        (self._records / f"{name}.json").unlink(missing_ok=True)

    def log_path(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def open_log(self, name: str) -> IO[bytes]:
        path = self.log_path(name)
        with suppress(FileNotFoundError):
            if path.stat().st_size > _LONG_LOG_BYTES:
                path.replace(path.with_suffix(".log.1"))
        return path.open("ab")


def default_state_directory() -> Path:
    """Return systemd's RUNTIME_DIRECTORY, else /run/nnrt for root, else `nnrt` in XDG_RUNTIME_DIR.

    Raises InvalidPath if no variable names a directory.
    """
    if runtime := os.environ.get("RUNTIME_DIRECTORY"):
        return Path(runtime.partition(":")[0])
    if os.geteuid() == 0:
        return Path("/run/nnrt")
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "nnrt"
    raise InvalidPath("XDG_RUNTIME_DIR is not set; name a directory of yours with --state-dir")
