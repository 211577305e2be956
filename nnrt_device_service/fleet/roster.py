"""Daemons of a supervisor, one per device, and their change to another list of devices."""

import asyncio
import logging
from collections.abc import Iterator

from nnrt_device_service.fleet.spec import DeviceSpec
from nnrt_device_service.fleet.state_directory import Record, State, StateDirectory
from nnrt_device_service.fleet.supervised import SupervisedDaemon
from nnrt_hdi.errors import InvalidParameter

_log = logging.getLogger(__name__)


class Roster:
    """Daemons of a host by device name, one per device."""

    def __init__(self, directory: StateDirectory, *, is_one_shot: bool) -> None:
        self._directory = directory
        self._is_one_shot = is_one_shot
        self._daemons: dict[str, SupervisedDaemon] = {}

    def __len__(self) -> int:
        return len(self._daemons)

    def __iter__(self) -> Iterator[SupervisedDaemon]:
        """Iterate over a copy of the daemons, so that the caller may await between them."""
        return iter(list(self._daemons.values()))

    def named(self, names: list[str]) -> list[SupervisedDaemon]:
        """Return the daemons of the named devices. Raises InvalidParameter for unknown names."""
        if unknown := [name for name in names if name not in self._daemons]:
            known = ", ".join(self._daemons) or "none"
            raise InvalidParameter(f"no device is called {', '.join(map(repr, unknown))}; there are: {known}")
        return [self._daemons[name] for name in names]

    def not_drained(self) -> list[SupervisedDaemon]:
        """Return the daemons that nobody has drained."""
        return [daemon for daemon in self._daemons.values() if not daemon.record.is_drained]

    def adopt(self) -> None:
        """Take over the daemons of an earlier supervisor, from their records."""
        for name, record in self._directory.records().items():
            self._daemons[name] = self._supervised(record)
            _log.info("found %s, which is %s", name, record.state.value)

    async def apply(self, specs: list[DeviceSpec]) -> None:
        """Make the daemons match `specs`: start missing ones, restart changed ones, end the others.

        A daemon whose spec is unchanged keeps running. A new daemon starts only after each former daemon of its name,
        its accelerator (unless that is shared) or one of its addresses has ended.
        """
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
        """Add a daemon for the device.

        It takes over the former daemon's drained flag and, if both specs name the same addresses, the ports that the
        former daemon really got.
        """
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
        return SupervisedDaemon(record, self._directory, is_one_shot=self._is_one_shot, on_change=self._hasten_restart)

    def _hasten_restart(self) -> None:
        """Hasten the backed-off daemon that may start earliest if no daemon is ready or starting."""
        daemons = self._daemons.values()
        waiting = [daemon for daemon in daemons if daemon.state is State.BACKING_OFF]
        # A ready daemon with a reason has a suspended device.
        serve = (d.state is State.STARTING or (d.state is State.READY and not d.record.why) for d in daemons)
        if waiting and not any(serve):
            first = min(waiting, key=lambda daemon: daemon.pause.may_end_at)
            if first.pause.hasten():
                said = "%s is started again sooner because no device serves"
                _log.warning(said, first.name, extra={"device": first.name})
