"""Supervision of one daemon, from its first start to its last end."""

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping

from nnrt_device_service.fleet.backoff import Pause
from nnrt_device_service.fleet.condition import Condition
from nnrt_device_service.fleet.process import Process
from nnrt_device_service.fleet.state_directory import Record, State, StateDirectory
from nnrt_device_service.host.readiness import ADDRESSES, OUT, SHARED
from nnrt_device_service.settings import variable_of

_log = logging.getLogger(__name__)

# Seconds that a daemon gets to end after it has drained.
_END_S = 20.0
# Exit codes with which `serve` rejects its settings or the host: errors, and usage errors.
_REFUSALS = frozenset({1, 2})
# From linux/prctl.h.
_PR_SET_PDEATHSIG = 1
# Variables that systemd sets for the supervisor, not for its daemons.
_SUPERVISOR_VARIABLES = frozenset(
    {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "MAINPID", "LISTEN_FDS", "LISTEN_PID"}
)


class SupervisedDaemon:
    """Supervision of one device's daemon: restarts it whenever it ends, until it is drained or can't work at all.

    All methods run in the supervisor's event loop.
    """

    def __init__(
        self, record: Record, directory: StateDirectory, *, is_one_shot: bool, on_change: Callable[[], None]
    ) -> None:
        """Take over the record's daemon if it still runs. Each change of its state calls `on_change`."""
        self.record = record
        self.condition = Condition(record, directory, on_change)
        # Pause between two starts.
        self.pause = Pause()
        self._directory = directory
        self._is_one_shot = is_one_shot
        # The daemon's process while it runs.
        self.process = Process.find(record.process) if record.process else None
        self._task: asyncio.Task[None] | None = None
        self._end_asked = asyncio.Event()
        self._limit: asyncio.TimerHandle | None = None
        # Time, of the event loop's clock, at which the daemon became ready.
        self._ready_at: float | None = None
        # The last start failed because the daemon or the kernel rejected its settings.
        self._is_refused = False
        self._has_been_ready = self.process is not None and record.state is State.READY

    @property
    def name(self) -> str:
        return self.record.spec.name

    @property
    def state(self) -> State:
        return self.record.state

    def begin(self) -> None:
        """Start the daemon, or supervise the one that runs. Does nothing if it is supervised already."""
        if self._task is None or self._task.done():
            self._end_asked.clear()
            self.record.is_drained = False
            if self.process is None:
                self._set_state(State.STARTING)
            self._run()

    async def drain(self) -> None:
        """End the daemon as `end` does, and keep it down until a user restarts it."""
        self.record.is_drained = True
        await self.end()

    async def end(self) -> None:
        """Ask the daemon to finish its work in progress and end, and wait until it has ended."""
        self._end_asked.set()
        self.pause.end()
        if self._task is not None and not self._task.done():
            if self.process is not None:
                self._ask_to_end(self.process)
        elif self.process is not None:
            self._run()
        else:
            self._set_state(State.DRAINED)
            return
        assert self._task is not None
        await asyncio.shield(self._task)

    def kill(self, why: str = "") -> None:
        """Kill the daemon with SIGKILL."""
        self.condition.killed_for = self.condition.killed_for or why
        if self.process is not None:
            self.process.send(signal.SIGKILL)

    def handle_notice(self, fields: Mapping[str, str]) -> None:
        """Apply a notice from the daemon to its record and state, and restart its time limit."""
        said = self.condition.status
        self.condition.status = "" if "READY" in fields or OUT in fields else fields.get("STATUS", said)
        if fields.get("EXIT_STATUS", "").isdecimal():
            self.record.last_exit = int(fields["EXIT_STATUS"])
        if SHARED in fields:
            self.record.is_shared = bool(fields[SHARED])
        if ADDRESSES in fields:
            self.record.addresses = tuple(fields[ADDRESSES].split())
            if self.state is State.STARTING and not self._end_asked.is_set():
                self._became_ready()
        if OUT in fields and self.state is State.READY:
            why = fields[OUT] and f"the device is out: {fields[OUT]}"
            if why != self.record.why:
                self._set_state(State.READY, why)
        if "STOPPING" in fields and self.state in (State.STARTING, State.READY):
            self._set_state(State.DRAINING)
        elif self.state is State.READY:
            self._limit_time()

    def _run(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._supervise())
        self._task.add_done_callback(self._handle_fault)

    def _handle_fault(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            _log.error("%s is no longer supervised", self.name, exc_info=task.exception(), extra={"device": self.name})
            self._set_state(State.FAILED, f"its supervisor has a fault: {task.exception()!r}")

    async def _supervise(self) -> None:
        while True:
            if self.process is None and not self._end_asked.is_set():
                self._start()
            if self.process is not None:
                await self._wait_for_end(self.process)
            if self._end_asked.is_set():
                self._set_state(State.DRAINED)
                return
            if self._is_hopeless():
                self._set_state(State.FAILED, self.condition.why_ended())
                _log.error("%s failed: %s", self.name, self.record.why, extra={"device": self.name})
                return
            await self._back_off()

    def _start(self) -> None:
        spec, record, condition = self.record.spec, self.record, self.condition
        condition.status = condition.killed_for = ""
        self._ready_at = None
        record.process, record.last_exit = None, None
        environment = {
            variable_of("report_dir"): str(self._directory.reports),
            **{name: value for name, value in os.environ.items() if name not in _SUPERVISOR_VARIABLES},
            **dict(spec.environment),
            "NOTIFY_SOCKET": str(self._directory.notify),
            "WATCHDOG_USEC": str(int(spec.watchdog_s * 1e6)),
        }
        # A restarted daemon keeps the addresses that its clients know.
        command = spec.command(record.addresses)
        try:
            if _is_journal(sys.stderr.fileno()):
                self.process = Process.start(command, environment, None, self._prepare)
            else:
                with self._directory.open_log(self.name) as log:
                    self.process = Process.start(command, environment, log.fileno(), self._prepare)
        except OSError as error:
            condition.status = f"it could not be started: {error}"
            return
        except subprocess.SubprocessError:
            self._is_refused = True
            condition.status = f"it may not run with nice {spec.nice}, or on processors {spec.cpus or 'of its own'}"
            return
        record.process = self.process.identity
        self._set_state(State.STARTING)

    def _prepare(self) -> None:
        """Set processors, niceness and the parent-death signal, in the child before it executes the command."""
        spec = self.record.spec
        if spec.cpus:
            os.sched_setaffinity(0, spec.cpus)
        if spec.nice is not None:
            os.setpriority(os.PRIO_PROCESS, 0, spec.nice)
        if self._is_one_shot:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    def _became_ready(self) -> None:
        self._ready_at = asyncio.get_running_loop().time()
        self._has_been_ready = True
        self._set_state(State.READY)
        _log.info("%s is ready on %s", self.name, ", ".join(self.record.addresses), extra={"device": self.name})

    async def _wait_for_end(self, process: Process) -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(process.fileno(), ended.set)
        if self.state is State.READY:
            self._ready_at = loop.time()
        if self._end_asked.is_set():
            self._ask_to_end(process)
        self._limit_time()
        try:
            await ended.wait()
        finally:
            loop.remove_reader(process.fileno())
        if self._limit is not None:
            self._limit.cancel()
        if (code := process.exit_code()) is not None:
            self.record.last_exit = code
        self._is_refused = self.record.last_exit in _REFUSALS
        self.record.process = self.process = None
        process.close()

    def _ask_to_end(self, process: Process) -> None:
        """Send SIGTERM unless the daemon is draining already: a second one would abort its work in progress."""
        if self.state is not State.DRAINING:
            self._set_state(State.DRAINING)
            process.send(signal.SIGTERM)

    def _is_hopeless(self) -> bool:
        return self._is_one_shot or (self._is_refused and not self._has_been_ready)

    async def _back_off(self) -> None:
        ready_s = 0.0 if self._ready_at is None else asyncio.get_running_loop().time() - self._ready_at
        wait_s = self.pause.begin(ready_s)
        self.record.restarts += 1
        if self._is_refused:
            self.record.addresses = ()  # Another process may use these addresses by now.
        why, said = self.condition.why_ended(), "%s: %s; it is started again in %.1f s"
        _log.warning(said, self.name, why, wait_s, extra={"device": self.name})
        self._set_state(State.BACKING_OFF, why)
        await self.pause.wait()

    def _limit_time(self) -> None:
        """Restart the time limit of the daemon's state, after which the supervisor kills the daemon."""
        spec = self.record.spec
        if self.state is State.STARTING:
            seconds, why = spec.start_timeout_s, f"was not ready within {spec.start_timeout_s:g} s"
        elif self.state is State.READY:
            seconds, why = spec.watchdog_s, f"gave no sign of life for {spec.watchdog_s:g} s"
        else:
            seconds = spec.drain_timeout_s + _END_S
            why = f"did not end within {seconds:g} s"
        if self._limit is not None:
            self._limit.cancel()
        self._limit = asyncio.get_running_loop().call_later(seconds, self.kill, why)

    def _set_state(self, state: State, why: str = "") -> None:
        self.condition.change(state, why)
        if self.process is not None:
            self._limit_time()


def _is_journal(descriptor: int) -> bool:
    """Return whether a descriptor leads to systemd's journal, as systemd.exec(5) describes it.

    Logs in the journal outlive the supervisor.
    """
    about = os.fstat(descriptor)
    return os.environ.get("JOURNAL_STREAM") == f"{about.st_dev}:{about.st_ino}"
