"""Specification of a device and its daemon, from which the supervisor starts the daemon."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import click

from nnrt_device_service.host.claim import device_key
from nnrt_device_service.settings import Settings, parsed

WATCHDOG_S = 30.0
START_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """Device, and how to start its daemon. If old and new spec are equal, the daemon needs no restart."""

    name: str
    # Arguments of `nnrt-device serve` without `--listen`.
    arguments: tuple[str, ...]
    listen: tuple[str, ...] = ("127.0.0.1:0",)
    environment: tuple[tuple[str, str], ...] = ()
    # Processors that the daemon may use; empty means all.
    cpus: tuple[int, ...] = ()
    # Niceness; None means the supervisor's.
    nice: int | None = None
    # Seconds without a sign of life, and seconds until ready, after which the supervisor kills the daemon.
    watchdog_s: float = WATCHDOG_S
    start_timeout_s: float = START_TIMEOUT_S
    # Seconds that work in progress gets when the daemon drains.
    drain_timeout_s: float = Settings().drain_timeout_s

    @property
    def accelerator(self) -> tuple[str, ...]:
        """Backend options and environment variables that decide which accelerator the daemon gets."""
        try:
            settings = self.settings()
            return device_key(settings.backend, settings.backend_options(), {**os.environ, **dict(self.environment)})
        except click.UsageError:  # Arguments of another version.
            return self.arguments

    def settings(self) -> Settings:
        """Parse the arguments. Raises click.UsageError."""
        return parsed([*(f"--listen={address}" for address in self.listen), *self.arguments])

    def command(self, listen: Sequence[str] = ()) -> list[str]:
        """Return the command that starts the daemon, on `listen` instead of its own addresses if that isn't empty."""
        addresses = [f"--listen={address}" for address in listen or self.listen]
        return [sys.executable, "-m", "nnrt_device_service", "serve", *addresses, *self.arguments]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "DeviceSpec":
        """Make a spec from the result of `as_json` of any version. Raises TypeError, KeyError or ValueError."""
        known: dict[str, Any] = {entry.name: value[entry.name] for entry in fields(DeviceSpec) if entry.name in value}
        for name in ("arguments", "listen", "cpus"):
            known[name] = tuple(value[name])
        known["environment"] = tuple((name, text) for name, text in value["environment"])
        return DeviceSpec(**known)
