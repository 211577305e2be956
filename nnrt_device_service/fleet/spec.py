"""What the supervisor knows of a device that it starts a daemon for."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import click

from nnrt_device_service.host.claim import chosen_by
from nnrt_device_service.settings import Settings, parsed

WATCHDOG_S = 30.0
START_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device, and how its daemon is started. Two that are equal need no restart."""

    name: str
    # Arguments of `nnrt-device serve` but for its addresses.
    arguments: tuple[str, ...]
    listen: tuple[str, ...] = ("127.0.0.1:0",)
    environment: tuple[tuple[str, str], ...] = ()
    # Processors that it may use; none named: all.
    cpus: tuple[int, ...] = ()
    # Its niceness; None: the supervisor's.
    nice: int | None = None
    # Seconds without a sign of life after which it is ended, and those that it gets to be ready.
    watchdog_s: float = WATCHDOG_S
    start_timeout_s: float = START_TIMEOUT_S
    # What work under way gets when it drains.
    drain_timeout_s: float = Settings().drain_timeout_s

    @property
    def accelerator(self) -> tuple[str, ...]:
        """Return the options and variables that decide which accelerator the daemon gets."""
        try:
            settings = self.settings()
            return chosen_by(settings.backend, settings.backend_options(), {**os.environ, **dict(self.environment)})
        except click.UsageError:  # Those of another version.
            return self.arguments

    def settings(self) -> Settings:
        """Raises click.UsageError."""
        return parsed([*(f"--listen={address}" for address in self.listen), *self.arguments])

    def command(self, listen: Sequence[str] = ()) -> list[str]:
        """How its daemon is started, on other addresses if any are given."""
        addresses = [f"--listen={address}" for address in listen or self.listen]
        return [sys.executable, "-m", "nnrt_device_service", "serve", *addresses, *self.arguments]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "DeviceSpec":
        """What `as_json` of any version gave. Raises TypeError, KeyError or ValueError for anything else."""
        known: dict[str, Any] = {entry.name: value[entry.name] for entry in fields(DeviceSpec) if entry.name in value}
        for name in ("arguments", "listen", "cpus"):
            known[name] = tuple(value[name])
        known["environment"] = tuple((name, text) for name, text in value["environment"])
        return DeviceSpec(**known)
