"""The supervisor: keeps the daemons of a host alive."""

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
from nnrt_device_service.fleet.shown import shown
from nnrt_device_service.fleet.spec import DeviceSpec
from nnrt_device_service.fleet.state_directory import Record, State, StateDirectory
from nnrt_device_service.fleet.supervised import SupervisedDaemon
from nnrt_device_service.host.readiness import notify, sign_of_life_s
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed

_log = logging.getLogger(__name__)

# As shells have it.
_NOT_FOUND = 127

Source = Callable[[], Awaitable[list[DeviceSpec]]]
"""What says which devices there are, each time it is asked. Raises NnrtError."""


class Supervisor:
    """Starts a daemon for each device, and keeps them as they are to be until SIGTERM."""

    def __init__(
        self,
        source: Source,
        directory: StateDirectory,
        *,
        on_ready: Callable[[list[Record]], None],
        is_one_shot: bool = False,
        command: Sequence[str] = (),
    ) -> None:
        """`on_ready` is called once, when no daemon is on its way any more. `command` runs then, in a one-shot."""
        self._source = source
        self._directory = directory
        self._on_ready = on_ready
        self._is_one_shot = is_one_shot
        self._command = command
        self._roster = Roster(directory, is_one_shot=is_one_shot)
        self._stopping = asyncio.Event()
        # Who changes which daemons there are, or what they are to do.
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._exit_code = 0
        self._has_fault = False

    async def run(self) -> int:
        """Supervise; the exit code.

        Daemons of a supervisor that was killed are taken over: those of devices that are as they were go on. So they
        do after a fault of this one, which is EX_SOFTWARE. Raises NnrtError where the devices can't be told.
        """
        specs = await self._source()
        async with AsyncExitStack() as stack:
            stack.enter_context(self._directory.taken())
            with self._directory.usable():
                notices = NotifySocket(self._directory.notify)
            stack.callback(notices.close)
            loop = asyncio.get_running_loop()
            loop.add_reader(notices.fileno(), self._hear, notices)
            stack.callback(loop.remove_reader, notices.fileno())
            self._take_signals(loop)
            self._roster.adopt()
            with self._directory.usable():
                await stack.enter_async_context(serve_control(self._directory.control, self._answer))
            self._later(self._start(specs))
            self._later(self._tell_alive())
            await self._stopping.wait()
            if self._has_fault:
                return os.EX_SOFTWARE
            await self._end()
        return self._exit_code

    def stop(self) -> None:
        """Drain all daemons and end; the second time end them at once."""
        if self._stopping.is_set():
            for daemon in self._roster:
                daemon.kill()
        self._stopping.set()

    def _take_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._later(self._reload()))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
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
            # Those that were asked to drain may still be at it.
            drained = [daemon.end() for daemon in self._roster if daemon.record.is_drained]
            await asyncio.gather(self._roster.apply(specs), *drained)
        await asyncio.gather(*(daemon.condition.settled() for daemon in self._roster))
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
                _log.error("nothing changes: %s", error)
            else:
                _log.info("reading again which devices there are: %s", ", ".join(spec.name for spec in specs))
                await self._roster.apply(specs)
            notify(READY=1)

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        notify(STOPPING=1, STATUS="draining")
        await asyncio.gather(*self._tasks, *(daemon.end() for daemon in self._roster), return_exceptions=True)
        for daemon in self._roster:
            self._directory.remove(daemon.name)

    # ---- what it hears and says

    def _hear(self, notices: NotifySocket) -> None:
        by_pid = {daemon.process.pid: daemon for daemon in self._roster if daemon.process is not None}
        for notice in notices.notices():
            if daemon := by_pid.get(notice.pid):
                daemon.heard(notice.fields)

    async def _tell_alive(self) -> None:
        """Tell systemd, where it watches over the supervisor."""
        sign_s = sign_of_life_s()
        while sign_s:
            ready = sum(daemon.state is State.READY for daemon in self._roster)
            notify(WATCHDOG=1, STATUS=f"{ready} of {len(self._roster)} devices are ready")
            await asyncio.sleep(sign_s)

    async def _answer(self, request: dict[str, Any], say: Say) -> list[dict[str, Any]]:
        """Do what a command asks for; see `nnrt_device_service.fleet.control`."""
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
        return [shown(daemon.record, daemon.process, self._directory) for daemon in self._roster]

    async def _drain(self, daemons: list[SupervisedDaemon], say: Say) -> None:
        async def drain(daemon: SupervisedDaemon) -> None:
            await daemon.drain()
            say(f"{daemon.name} is drained")

        await _all_done(map(drain, daemons))

    async def _restart(self, daemons: list[SupervisedDaemon], say: Say, *, rolling: bool) -> None:
        """Raises OperationFailed where one doesn't get ready; rolling, those after it are left as they are."""

        async def restart(daemon: SupervisedDaemon) -> None:
            await daemon.end()
            if self._stopping.is_set():
                raise OperationFailed("the supervisor ends")
            daemon.begin()
            if await daemon.condition.settled() is not State.READY:
                raise OperationFailed(f"{daemon.name} is {daemon.state.value} after its restart: {daemon.record.why}")
            say(f"{daemon.name} is ready on {', '.join(daemon.record.addresses)}")

        if rolling:
            for daemon in daemons:
                await restart(daemon)
        else:
            await _all_done(map(restart, daemons))

    async def _one_shot(self) -> None:
        """Run the command, if there is one, until it or a daemon ends."""
        waiting = [asyncio.ensure_future(daemon.condition.until(State.FAILED)) for daemon in self._roster]
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
        """The exit code of the command, which finds the devices in NNRT_DEVICES."""
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
        """The exit code of the daemon that failed; 1 where it has none."""
        codes = [daemon.record.last_exit for daemon in self._roster if daemon.state is State.FAILED]
        return _shell_code(codes[0]) if codes and codes[0] else 1


async def _all_done(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Raises what the first one raises that fails, when all have ended."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if outcome is not None:
            raise outcome


def _shell_code(code: int) -> int:
    """An exit code as shells have it for a process that a signal ended."""
    return code if code >= 0 else 128 - code
