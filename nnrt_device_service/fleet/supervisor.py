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
        self._daemons: dict[str, SupervisedDaemon] = {}
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
            self._adopt()
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
            for daemon in self._daemons.values():
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

    # ---- which daemons there are

    def _adopt(self) -> None:
        """Know of all that a supervisor before has left."""
        for name, record in self._directory.records().items():
            self._daemons[name] = self._supervised(record)
            _log.info("found %s, which is %s", name, record.state.value)

    def _supervised(self, record: Record) -> SupervisedDaemon:
        return SupervisedDaemon(record, self._directory, is_one_shot=self._is_one_shot, on_change=self._have_one_serve)

    def _have_one_serve(self) -> None:
        """Hasten one daemon if none is ready or starting."""
        daemons = self._daemons.values()
        waiting = [daemon for daemon in daemons if daemon.state is State.BACKING_OFF]
        # A device that is out has a reason.
        serve = (d.state is State.STARTING or (d.state is State.READY and not d.record.why) for d in daemons)
        if waiting and not any(serve):
            min(waiting, key=lambda daemon: daemon.may_start_at).hasten()

    async def _start(self, specs: list[DeviceSpec]) -> None:
        async with self._changing:
            for daemon in self._daemons.values():
                if daemon.record.spec in specs and not daemon.record.is_drained:
                    daemon.begin()
            await asyncio.gather(self._apply(specs), *self._ends_of_drained())
        await self._all_settled()
        self._on_ready([daemon.record for daemon in self._daemons.values()])
        notify(READY=1)
        if self._is_one_shot:
            await self._one_shot()
        elif self._daemons and all(daemon.state is State.FAILED for daemon in self._daemons.values()):
            self._exit_code = 1
            self._stopping.set()

    def _ends_of_drained(self) -> list[Coroutine[Any, Any, None]]:
        """Those that were asked to drain, and may still be at it."""
        return [daemon.end() for daemon in self._daemons.values() if daemon.record.is_drained]

    async def _apply(self, specs: list[DeviceSpec]) -> None:
        """Have a daemon for each of these devices, and no others; those that are as they should be go on."""
        wanted = {spec.name: spec for spec in specs}
        ending = {
            name: (daemon, asyncio.ensure_future(daemon.end()))
            for name, daemon in self._daemons.items()
            if name not in wanted or wanted[name] != daemon.record.spec
        }

        async def begin(spec: DeviceSpec) -> None:
            for name, (daemon, end) in ending.items():
                former = daemon.record
                has_accelerator = former.spec.accelerator == spec.accelerator and not former.is_shared
                if name == spec.name or has_accelerator or {*former.addresses} & {*spec.listen}:
                    await end
            self._add(spec, ending[spec.name][0].record if spec.name in ending else None)

        async def forget(name: str, end: asyncio.Future[None]) -> None:
            await end
            del self._daemons[name]
            self._directory.remove(name)

        await asyncio.gather(
            *(begin(spec) for spec in specs if spec.name in ending or spec.name not in self._daemons),
            *(forget(name, end) for name, (_, end) in ending.items() if name not in wanted),
        )

    def _add(self, spec: DeviceSpec, former: Record | None) -> None:
        """Keep a daemon for the device: where the former one was, and as drained as that."""
        is_drained = former is not None and former.is_drained
        record = Record(spec, State.DRAINED if is_drained else State.STARTING, is_drained=is_drained)
        if former is not None and former.spec.listen == spec.listen:
            record.addresses = former.addresses
        daemon = self._daemons[spec.name] = self._supervised(record)
        if is_drained:
            self._directory.write(record)
        else:
            daemon.begin()

    async def _reload(self) -> None:
        async with self._changing:
            notify(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)
            try:
                specs = await self._source()
            except NnrtError as error:
                _log.error("nothing changes: %s", error)
            else:
                _log.info("reading again which devices there are: %s", ", ".join(spec.name for spec in specs))
                await self._apply(specs)
            notify(READY=1)

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        notify(STOPPING=1, STATUS="draining")
        await asyncio.gather(*self._tasks, *(daemon.end() for daemon in self._daemons.values()), return_exceptions=True)
        for name in self._daemons:
            self._directory.remove(name)

    async def _all_settled(self) -> None:
        await asyncio.gather(*(daemon.settled() for daemon in list(self._daemons.values())))

    # ---- what it hears and says

    def _hear(self, notices: NotifySocket) -> None:
        by_pid = {daemon.process.pid: daemon for daemon in self._daemons.values() if daemon.process is not None}
        for notice in notices.notices():
            if daemon := by_pid.get(notice.pid):
                daemon.heard(notice.fields)

    async def _tell_alive(self) -> None:
        """Tell systemd, where it watches over the supervisor."""
        sign_s = sign_of_life_s()
        while sign_s:
            ready = sum(daemon.state is State.READY for daemon in self._daemons.values())
            notify(WATCHDOG=1, STATUS=f"{ready} of {len(self._daemons)} devices are ready")
            await asyncio.sleep(sign_s)

    async def _answer(self, request: dict[str, Any], say: Say) -> list[dict[str, Any]]:
        """Do what a command asks for; see `nnrt_device_service.fleet.control`."""
        match request["do"]:
            case "ps":
                pass
            case "drain":
                async with self._changing:
                    await self._drain(self._named(request["names"]) or list(self._daemons.values()), say)
            case "restart":
                async with self._changing:
                    daemons = self._named(request["names"]) or self._not_drained()
                    await self._restart(daemons, say, rolling=request["rolling"])
            case other:
                raise InvalidParameter(f"there is nothing called {other!r}; use ps, drain or restart")
        return [shown(daemon.record, daemon.process, self._directory) for daemon in self._daemons.values()]

    def _named(self, names: list[str]) -> list[SupervisedDaemon]:
        if unknown := [name for name in names if name not in self._daemons]:
            known = ", ".join(self._daemons) or "none"
            raise InvalidParameter(f"no device is called {', '.join(map(repr, unknown))}; there are: {known}")
        return [self._daemons[name] for name in names]

    def _not_drained(self) -> list[SupervisedDaemon]:
        return [daemon for daemon in self._daemons.values() if not daemon.record.is_drained]

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
            if await daemon.settled() is not State.READY:
                raise OperationFailed(f"{daemon.name} is {daemon.state.value} after its restart: {daemon.record.why}")
            say(f"{daemon.name} is ready on {', '.join(daemon.record.addresses)}")

        if rolling:
            for daemon in daemons:
                await restart(daemon)
        else:
            await _all_done(map(restart, daemons))

    async def _one_shot(self) -> None:
        """Run the command, if there is one, until it or a daemon ends."""
        waiting = [asyncio.ensure_future(daemon.until(State.FAILED)) for daemon in self._daemons.values()]
        is_whole = all(daemon.state is State.READY for daemon in self._daemons.values())
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
        addresses = [daemon.record.addresses[0] for daemon in self._daemons.values()]
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
        codes = [daemon.record.last_exit for daemon in self._daemons.values() if daemon.state is State.FAILED]
        return _shell_code(codes[0]) if codes and codes[0] else 1


async def _all_done(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Raises what the first one raises that fails, when all have ended."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if outcome is not None:
            raise outcome


def _shell_code(code: int) -> int:
    """An exit code as shells have it for a process that a signal ended."""
    return code if code >= 0 else 128 - code
