"""Supervisor, which keeps the daemons of a host running."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from nnrt_device_service.fleet.control import Say, serve_control
from nnrt_device_service.fleet.notify_socket import NotifySocket
from nnrt_device_service.fleet.roster import Roster
from nnrt_device_service.fleet.shown import daemon_row
from nnrt_device_service.fleet.spec import DeviceSpec
from nnrt_device_service.fleet.state_directory import Record, State, StateDirectory
from nnrt_device_service.fleet.supervised import SupervisedDaemon
from nnrt_device_service.host.readiness import notify, sign_of_life_s
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed

_log = logging.getLogger(__name__)

# Exit code of a shell for a command that it doesn't find.
_NOT_FOUND = 127

Source = Callable[[], Awaitable[list[DeviceSpec]]]
"""Function that returns the current specs of the devices. Raises NnrtError."""


class Supervisor:
    """Supervisor of one daemon per device, which runs until SIGTERM."""

    def __init__(
        self,
        source: Source,
        directory: StateDirectory,
        *,
        on_ready: Callable[[list[Record]], None],
        is_one_shot: bool = False,
        command: Sequence[str] = (),
    ) -> None:
        """Prepare to supervise the devices of `source`; `run` starts.

        Args:
            source: Returns the specs of the devices, at the start and at each SIGHUP.
            directory: Where the records, logs and sockets lie.
            on_ready: Called once, when each daemon is ready, drained, failed or backing off.
            is_one_shot: Whether the daemons are never restarted, and end together with `command` or the first failure.
            command: Command that a one-shot runs when all daemons are ready.
        """
        self._source = source
        self._directory = directory
        self._on_ready = on_ready
        self._is_one_shot = is_one_shot
        self._command = command
        self._roster = Roster(directory, is_one_shot=is_one_shot)
        self._stopping = asyncio.Event()
        # Serializes changes to the list of daemons and to what they should do.
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._exit_code = 0
        self._has_fault = False

    async def run(self) -> int:
        """Supervise until a signal or a fault, and return the exit code.

        Takes over the daemons of a killed supervisor; those whose spec is unchanged keep running. After a fault of its
        own it returns EX_SOFTWARE and leaves its daemons running. Raises NnrtError if the source of devices fails.
        """
        specs = await self._source()
        async with AsyncExitStack() as stack:
            stack.enter_context(self._directory.locked())
            with self._directory.usable():
                notices = NotifySocket(self._directory.notify)
            stack.callback(notices.close)
            loop = asyncio.get_running_loop()
            loop.add_reader(notices.fileno(), self._handle_notices, notices)
            stack.callback(loop.remove_reader, notices.fileno())
            self._take_signals(loop)
            self._roster.adopt()
            with self._directory.usable():
                await stack.enter_async_context(serve_control(self._directory.control, self._answer))
            self._spawn(self._start(specs))
            self._spawn(self._send_signs_of_life())
            await self._stopping.wait()
            if self._has_fault:
                return os.EX_SOFTWARE
            await self._end()
        return self._exit_code

    def stop(self) -> None:
        """Drain all daemons and end; a second call kills them."""
        if self._stopping.is_set():
            for daemon in self._roster:
                daemon.kill()
        self._stopping.set()

    def _take_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._spawn(self._reload()))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._handle_task_end)

    def _handle_task_end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("the supervisor has a fault and ends; its daemons go on", exc_info=task.exception())
            self._has_fault = True
            self._stopping.set()

    async def _start(self, specs: list[DeviceSpec]) -> None:
        async with self._changing:
            for daemon in self._roster.not_drained():
                if daemon.record.spec in specs:
                    daemon.begin()
            # Daemons that were asked to drain may still be draining.
            drained = [daemon.end() for daemon in self._roster if daemon.record.is_drained]
            await asyncio.gather(self._roster.apply(specs), *drained)
        await asyncio.gather(*(daemon.condition.await_settled() for daemon in self._roster))
        self._on_ready([daemon.record for daemon in self._roster])
        notify(READY=1)
        if self._is_one_shot:
            await self._one_shot()
        elif len(self._roster) and all(daemon.state is State.FAILED for daemon in self._roster):
            self._exit_code = 1
            self._stopping.set()

    async def _reload(self) -> None:
        async with self._changing:
            notify(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)
            try:
                specs = await self._source()
            except NnrtError as error:
                _log.error("the devices stay unchanged: %s", error)
            else:
                _log.info("read the devices again: %s", ", ".join(spec.name for spec in specs))
                await self._roster.apply(specs)
            notify(READY=1)

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        notify(STOPPING=1, STATUS="draining")
        await asyncio.gather(*self._tasks, *(daemon.end() for daemon in self._roster), return_exceptions=True)
        for daemon in self._roster:
            self._directory.remove(daemon.name)

    # ---- notices and requests

    def _handle_notices(self, notices: NotifySocket) -> None:
        by_pid = {daemon.process.pid: daemon for daemon in self._roster if daemon.process is not None}
        for notice in notices.notices():
            if daemon := by_pid.get(notice.pid):
                daemon.handle_notice(notice.fields)

    async def _send_signs_of_life(self) -> None:
        """Send signs of life to systemd if systemd watches the supervisor."""
        sign_s = sign_of_life_s()
        while sign_s:
            ready = sum(daemon.state is State.READY for daemon in self._roster)
            notify(WATCHDOG=1, STATUS=f"{ready} of {len(self._roster)} devices are ready")
            await asyncio.sleep(sign_s)

    async def _answer(self, request: dict[str, Any], say: Say) -> list[dict[str, Any]]:
        """Carry out a command's request; see `nnrt_device_service.fleet.control`."""
        match request["do"]:
            case "ps":
                pass
            case "drain":
                async with self._changing:
                    await self._drain(self._roster.named(request["names"]) or list(self._roster), say)
            case "restart":
                async with self._changing:
                    daemons = self._roster.named(request["names"]) or self._roster.not_drained()
                    await self._restart(daemons, say, rolling=request["rolling"])
            case other:
                raise InvalidParameter(f"there is nothing called {other!r}; use ps, drain or restart")
        return [daemon_row(daemon.record, daemon.process, self._directory) for daemon in self._roster]

    async def _drain(self, daemons: list[SupervisedDaemon], say: Say) -> None:
        async def drain(daemon: SupervisedDaemon) -> None:
            await daemon.drain()
            say(f"{daemon.name} is drained")

        await _gather_all(map(drain, daemons))

    async def _restart(self, daemons: list[SupervisedDaemon], say: Say, *, rolling: bool) -> None:
        """Restart daemons: one after the other if `rolling`, else all at once.

        Raises OperationFailed if a daemon doesn't become ready; a rolling restart stops there.
        """

        async def restart(daemon: SupervisedDaemon) -> None:
            await daemon.end()
            if self._stopping.is_set():
                raise OperationFailed("the supervisor ends")
            daemon.begin()
            if await daemon.condition.await_settled() is not State.READY:
                raise OperationFailed(f"{daemon.name} is {daemon.state.value} after its restart: {daemon.record.why}")
            say(f"{daemon.name} is ready on {', '.join(daemon.record.addresses)}")

        if rolling:
            for daemon in daemons:
                await restart(daemon)
        else:
            await _gather_all(map(restart, daemons))

    async def _one_shot(self) -> None:
        """Run the command, if there is one and all daemons are ready, until the command ends or a daemon fails."""
        waiting = [asyncio.ensure_future(daemon.condition.await_state(State.FAILED)) for daemon in self._roster]
        is_whole = all(daemon.state is State.READY for daemon in self._roster)
        command = asyncio.ensure_future(self._run_command()) if self._command and is_whole else None
        try:
            await asyncio.wait([*waiting, *([command] if command else [])], return_when=asyncio.FIRST_COMPLETED)
            self._exit_code = command.result() if command and command.done() else self._failure_code()
        finally:
            for future in (*waiting, *([command] if command else [])):
                future.cancel()
            if command:
                await asyncio.wait([command])
        self._stopping.set()

    async def _run_command(self) -> int:
        """Run the command with the devices' addresses in NNRT_DEVICES, and return its exit code."""
        addresses = [daemon.record.addresses[0] for daemon in self._roster]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, env={**os.environ, "NNRT_DEVICES": ",".join(addresses)}
            )
        except OSError as error:
            _log.error("%s: %s", self._command[0], error.strerror)
            return _NOT_FOUND
        try:
            return _shell_code(await process.wait())
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            raise

    def _failure_code(self) -> int:
        """Return the exit code of the first failed daemon, or 1 if it has none."""
        codes = [daemon.record.last_exit for daemon in self._roster if daemon.state is State.FAILED]
        return _shell_code(codes[0]) if codes and codes[0] else 1


async def _gather_all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait until all coroutines have ended, then raise the first exception in their order, if any."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if outcome is not None:
            raise outcome


def _shell_code(code: int) -> int:
    """Return the exit code that a shell gives for a process: 128 plus the signal if a signal ended it."""
    return code if code >= 0 else 128 - code
