"""Which daemons a supervisor has: one for each device."""

import asyncio
import logging
from collections.abc import Iterator

from nnrt_device_service.fleet.spec import DeviceSpec
from nnrt_device_service.fleet.state_directory import Record, State, StateDirectory
from nnrt_device_service.fleet.supervised import SupervisedDaemon
from nnrt_hdi.errors import InvalidParameter

_log = logging.getLogger(__name__)


class Roster:
    """The daemons of a host, one for each device, by its name."""

    def __init__(self, directory: StateDirectory, *, is_one_shot: bool) -> None:
        self._directory = directory
        self._is_one_shot = is_one_shot
        self._daemons: dict[str, SupervisedDaemon] = {}

    def __len__(self) -> int:
        return len(self._daemons)

    def __iter__(self) -> Iterator[SupervisedDaemon]:
        """Yield those that there are now. Whoever goes through them may wait meanwhile."""
        return iter(list(self._daemons.values()))

    def named(self, names: list[str]) -> list[SupervisedDaemon]:
        """Give the daemons of these devices. Raises InvalidParameter for names that there aren't."""
        if unknown := [name for name in names if name not in self._daemons]:
            known = ", ".join(self._daemons) or "none"
            raise InvalidParameter(f"no device is called {', '.join(map(repr, unknown))}; there are: {known}")
        return [self._daemons[name] for name in names]

    def not_drained(self) -> list[SupervisedDaemon]:
        """Give those that nobody wants down."""
        return [daemon for daemon in self._daemons.values() if not daemon.record.is_drained]

    def adopt(self) -> None:
        """Take over all that an earlier supervisor has left."""
        for name, record in self._directory.records().items():
            self._daemons[name] = self._supervised(record)
            _log.info("found %s, which is %s", name, record.state.value)

    async def apply(self, specs: list[DeviceSpec]) -> None:
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

    def _supervised(self, record: Record) -> SupervisedDaemon:
        return SupervisedDaemon(record, self._directory, is_one_shot=self._is_one_shot, on_change=self._have_one_serve)

    def _have_one_serve(self) -> None:
        """Start the daemon that may start first sooner, if none is ready or starting."""
        daemons = self._daemons.values()
        waiting = [daemon for daemon in daemons if daemon.state is State.BACKING_OFF]
        # A device that is out has a reason.
        serve = (d.state is State.STARTING or (d.state is State.READY and not d.record.why) for d in daemons)
        if waiting and not any(serve):
            first = min(waiting, key=lambda daemon: daemon.pause.may_end_at)
            if first.pause.hasten():
                said = "%s is started again sooner, for no device serves"
                _log.warning(said, first.name, extra={"device": first.name})
