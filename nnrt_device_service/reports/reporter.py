"""Making of reports in a daemon, even in one that is stuck or out of resources."""

import faulthandler
import logging
import os
import secrets
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from nnrt_device_service.device import Device
from nnrt_device_service.host.log_handler import LogHandler
from nnrt_device_service.host.peer import peer_of
from nnrt_device_service.host.threads import start_thread
from nnrt_device_service.reports import parts
from nnrt_device_service.reports.archive import file_name, pack, write_archive
from nnrt_device_service.reports.hidden import hide_values, secret_values
from nnrt_device_service.settings import PATHS, Settings, variable_of
from nnrt_hdi.errors import InvalidPath, NnrtError, OutOfMemory

_log = logging.getLogger(__name__)

PART_S = 2.0
"""Seconds that a part of a report may take."""
SOCKET_NAME = "nnrt-report-{pid}-"
"""Beginning of the name of the abstract socket (unix(7)) that gives reports."""
STACKS_NAME = "nnrt-stacks"
"""Name of the memory file that receives the stacks of all threads at SIGUSR2, even if Python code is stuck."""

_SEND_S = 10.0
# Spare descriptors, closed while a report is made, for a process that has no others left.
_SPARE_DESCRIPTORS = 4

Part = Callable[[], str]


class _Gatherer:
    """Thread that gathers parts. It is started in advance, because threads may run out later."""

    def __init__(self) -> None:
        """Start the thread. Raises OutOfMemory."""
        self._todo: SimpleQueue[tuple[Part, SimpleQueue[str]]] = SimpleQueue()
        self.is_hanging = False
        self._thread = start_thread(self._work, "report-part")

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def gather(self, part: Part) -> str:
        """Return the part, or why there is none. A part that takes too long sets `is_hanging`."""
        done: SimpleQueue[str] = SimpleQueue()
        self._todo.put((part, done))
        try:
            return done.get(timeout=PART_S)
        except Empty:
            self.is_hanging = True
            return f"it was not there after {PART_S:g} s\n"

    def _work(self) -> None:
        while not self.is_hanging:
            part, done = self._todo.get()
            try:
                done.put(part())
            except BaseException as error:  # The other parts must still be reported.
                done.put(f"it failed with {type(error).__name__}: {error}\n")


class Reporter:
    """Maker of reports when SIGUSR1 or `nnrt-device report` asks, in threads started in advance."""

    def __init__(self, settings: Settings, log: LogHandler) -> None:
        """Install the signal handlers and start the threads. Call it in the main thread.

        Raises OutOfMemory if no thread can be started, and InvalidPath if the report directory doesn't exist.
        """
        self._settings = settings
        self._directory = Path(settings.report_dir or tempfile.gettempdir()).absolute()
        if not self._directory.is_dir():
            raise InvalidPath(f"{str(self._directory)!r} is no directory; make it first", place="--report-dir")
        self._recent = log.recent
        # Device of the daemon, set as soon as it exists.
        self.device: Device | None = None
        # By the name of a hanging part: the gatherer that still waits for it.
        self._hanging: dict[str, _Gatherer] = {}
        self._gatherer = _Gatherer()
        self._secrets = secret_values([*_variables(), *(_pair(option) for option in settings.option)])
        self._spare = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(_SPARE_DESCRIPTORS)]
        self._asked, self._asking = os.pipe()
        for end in (self._asked, self._asking):
            os.set_blocking(end, False)
        self._listener = _listener()
        signal.signal(signal.SIGUSR1, lambda number, frame: self._ask())
        signal.siginterrupt(signal.SIGUSR1, False)
        # Print the stack if a processor fault, or a mapped file that was truncated, ends the process.
        faulthandler.enable(all_threads=False)
        if hasattr(os, "memfd_create"):
            faulthandler.register(signal.SIGUSR2, os.memfd_create(STACKS_NAME, os.MFD_CLOEXEC))
        start_thread(self._serve, "report")

    def parts(self) -> dict[str, str]:
        """Return the parts of a report. Those that need no lock come first."""
        wanted: dict[str, Part] = {
            "log.txt": lambda: "\n".join(list(self._recent)) + "\n",
            "stacks.txt": parts.stacks,
            "settings.json": partial(parts.settings, self._settings),
            "versions.json": parts.versions,
            "environment.json": parts.environment,
            "host.json": parts.host,
        }
        if (device := self.device) is not None:
            wanted["device.json"] = partial(parts.device, device)
            wanted["sessions.json"] = partial(parts.sessions, device)
            wanted["counters.json"] = partial(parts.counters, device)
        return {name: hide_values(self._secrets, self._gathered(name, part)) for name, part in wanted.items()}

    def _gathered(self, name: str, part: Part) -> str:
        if name in self._hanging and self._hanging[name].is_alive:
            return "it has not come since a report before\n"
        try:
            if self._gatherer.is_hanging:
                self._gatherer = _Gatherer()
        except OutOfMemory as error:
            return f"it can't be gathered because another part hangs: {error}\n"
        text = self._gatherer.gather(part)
        if self._gatherer.is_hanging:
            self._hanging[name] = self._gatherer
        return text

    def _name(self) -> str:
        device = self.device
        return file_name(f"{device.info.device_name if device else self._settings.backend}-{os.getpid()}")

    def _ask(self) -> None:
        with suppress(BlockingIOError):  # Enough reports have been requested.
            os.write(self._asking, b"\0")

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._asked, select.POLLIN)
        if self._listener is not None:
            poll.register(self._listener, select.POLLIN)
        while True:
            for ready, _ in poll.poll():
                try:
                    with self._spared():
                        if ready == self._asked:
                            os.read(self._asked, select.PIPE_BUF)
                            self._write()
                        elif self._listener is not None:
                            self._answer(self._listener)
                except Exception:
                    _log.exception("a report could not be made")

    @contextmanager
    def _spared(self) -> Iterator[None]:
        while self._spare:
            os.close(self._spare.pop())
        try:
            yield
        finally:
            with suppress(OSError):
                while len(self._spare) < _SPARE_DESCRIPTORS:
                    self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _write(self) -> None:
        name = self._name()
        try:
            _log.info("a report is at %s", write_archive(self._directory, name, pack(name, self.parts())))
        except NnrtError as error:
            _log.error("%s", error)

    def _answer(self, listener: socket.socket) -> None:
        """Send a report to a connection, if its peer is this daemon's user or root."""
        connection, _ = listener.accept()
        with connection:
            if peer_of(connection).user_id in (0, os.geteuid()):
                connection.settimeout(_SEND_S)
                with suppress(OSError):  # The peer has hung up.
                    connection.sendall(pack(self._name(), self.parts()))


def _listener() -> socket.socket | None:
    """Return the listening socket for reports, or None if the host has no abstract sockets."""
    if sys.platform != "linux":
        return None
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(b"\0" + SOCKET_NAME.format(pid=os.getpid()).encode() + secrets.token_hex(8).encode())
    listener.listen()
    return listener


def _variables() -> Iterator[tuple[str, str]]:
    """Return the environment variables, except those that set paths (`PATHS`): a path is no secret."""
    paths = set(map(variable_of, PATHS))
    return ((name, value) for name, value in os.environ.items() if name not in paths)


def _pair(option: str) -> tuple[str, str]:
    name, _, value = option.partition("=")
    return name, value
