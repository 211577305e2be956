"""Fleet file: names the devices of a host and the settings of their daemons.

[defaults]                      # for all devices
backend = "onnxruntime"
listen = "127.0.0.1:50051+"     # the first device; the next one gets port 50052, and so on
store-dir = "store"             # beside this file

[device.gpu0]
provider = "cuda"
cpus = "0-7"
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from nnrt_device_service.fleet.spec import START_TIMEOUT_S, WATCHDOG_S, DeviceSpec
from nnrt_device_service.settings import PATHS, Settings, setting_flags
from nnrt_hdi.backend import require_backend
from nnrt_hdi.errors import InvalidFile, InvalidPath, NnrtError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ADDRESS = re.compile(r"unix:.+|.+:[0-9]{1,5}")
_COUNTED_ADDRESS = re.compile(r"(.+:)([0-9]{1,5})\+")
_LEAST_S, _MOST_S = 0.1, 86_400.0
_NICE = range(-20, 20)


def read_fleet(path: Path, host: str) -> list[DeviceSpec]:
    """Return the devices that a fleet file names.

    Clients see a device as `HOST-NAME`, with `host`, unless the file gives it another name. Raises InvalidPath if the
    file can't be read, and InvalidFile with a list of all problems in it.
    """
    try:
        tables = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidPath(f"it can't be read: {error.strerror}", place=f"fleet file {str(path)!r}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidFile(f"it is no TOML: {error}", place=f"fleet file {str(path)!r}") from error
    reading = _Reading(path, host)
    specs = reading.fleet(tables)
    if reading.problems:
        raise InvalidFile("\n  ".join(["wrong in it:", *reading.problems]), place=f"fleet file {str(path)!r}")
    return specs


class _Reading:
    """Reader of one fleet file, which collects all problems that it finds."""

    def __init__(self, path: Path, host: str) -> None:
        self.problems: list[str] = []
        self._folder = path.absolute().parent
        self._host = host
        self._flags = setting_flags()
        # Converters of the keys that are no settings of `serve`.
        self._own = {
            "options": self._options,
            "environment": self._environment,
            "cpus": self._cpus,
            "nice": self._nice,
            "watchdog-s": self._seconds,
            "start-timeout-s": self._seconds,
        }

    def fleet(self, tables: Mapping[str, Any]) -> list[DeviceSpec]:
        for name in tables.keys() - {"defaults", "device"}:
            self._add_problem("", f"there is no table {name!r}; use [defaults] and [device.NAME]")
        defaults = self._values("[defaults]", tables.get("defaults", {}))
        if "name" in defaults:
            self._add_problem("[defaults] name", "names must differ; give each device its own")
        devices = tables.get("device", {})
        if not (isinstance(devices, dict) and devices):
            self._add_problem("", "it names no device; add a table [device.NAME] for each")
            return []
        specs = [
            spec
            for index, (name, table) in enumerate(devices.items())
            if (spec := self._device(index, name, defaults, table))
        ]
        self._require_different_addresses(specs)
        return specs

    def _device(self, index: int, name: str, defaults: Mapping[str, Any], table: Any) -> DeviceSpec | None:
        place = f"[device.{name}]"
        if not NAME.fullmatch(name):
            self._add_problem(place, f"{name!r} is no name; use up to 64 letters, digits and ._-")
        own = self._values(place, table)
        values = {"name": f"{self._host}-{name}", **defaults, **own}
        for key in ("options", "environment"):
            values[key] = {**defaults.get(key, {}), **own.get(key, {})}
        for key in values.keys() & {"health-listen", "metrics-listen"}:
            values[key] = _with_counted_port(values[key], index)
        before = len(self.problems)
        listen = tuple(self._address(place, address, index) for address in values.get("listen", ("127.0.0.1:0",)))
        if len(self.problems) > before:
            return None
        spec = DeviceSpec(
            name,
            tuple(self._arguments(values)),
            listen,
            environment=tuple(sorted(values["environment"].items())),
            cpus=values.get("cpus", ()),
            nice=values.get("nice"),
            watchdog_s=values.get("watchdog-s", WATCHDOG_S),
            start_timeout_s=values.get("start-timeout-s", START_TIMEOUT_S),
        )
        settings = self._checked(place, spec)
        return replace(spec, drain_timeout_s=settings.drain_timeout_s) if settings else None

    def _arguments(self, values: Mapping[str, Any]) -> Iterator[str]:
        for flag, value in values.items():
            if flag in self._own or flag == "listen" or value is False:
                continue
            if value is True:
                yield f"--{flag}"
            else:
                yield from (f"--{flag}={one}" for one in (value if isinstance(value, tuple) else (value,)))
        yield from (f"--option={name}={value}" for name, value in sorted(values["options"].items()))

    def _checked(self, place: str, spec: DeviceSpec) -> Settings | None:
        """Check a daemon's settings together and return them, or None if they can't be parsed."""
        try:
            settings = spec.settings()
            settings.backend_options()
        except click.UsageError as error:
            self._add_problem(place, error.format_message())
            return None
        try:
            require_backend(settings.backend)
        except NnrtError as error:
            self._add_problem(f"{place} backend", error.message)
        for address in spec.listen:
            try:
                settings.require_guarded(address)
            except NnrtError as error:
                self._add_problem(f"{place} listen", str(error))
        return settings

    def _require_different_addresses(self, specs: list[DeviceSpec]) -> None:
        taken: dict[str, str] = {}
        for spec in specs:
            for address in spec.listen:
                if address.endswith(":0") and not address.startswith("unix:"):
                    continue
                if other := taken.get(address):
                    self._add_problem(
                        f"[device.{spec.name}] listen", f"{address!r} is that of [device.{other}] too; give another"
                    )
                taken[address] = spec.name

    def _values(self, place: str, table: Any) -> dict[str, Any]:
        """Return the converted values of a table, without those that have a problem."""
        if not isinstance(table, dict):
            self._add_problem(place, f"it is {table!r}; use a table")
            return {}
        values = {}
        for key, value in table.items():
            known = [*self._flags, *self._own]
            where = f"{place} {key}"
            if key not in known:
                nearest = get_close_matches(key.replace("_", "-"), known, n=1)
                hint = f"; {nearest[0]!r}?" if nearest else "; use the flags of `nnrt-device serve`, without the dashes"
                self._add_problem(where, f"there is no such setting{hint}")
                continue
            try:
                values[key] = self._own[key](value) if key in self._own else self._setting(key, value)
            except click.BadParameter as error:
                self._add_problem(where, error.message)
            except ValueError as error:
                self._add_problem(where, str(error))
        return values

    def _setting(self, key: str, value: Any) -> Any:
        option = self._flags[key]
        if option.is_flag:
            if not isinstance(value, bool):
                raise ValueError(f"it is {value!r}; use true or false")
            return value
        if option.multiple:
            return tuple(map(self._resolve_unix_path, _as_texts(value))) if key == "listen" else _as_texts(value)
        if isinstance(option.type, (click.types.IntParamType, click.types.FloatParamType)):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"it is {value!r}; use a number")
            if isinstance(value, float) and isinstance(option.type, click.types.IntParamType):
                raise ValueError(f"it is {value!r}; use a whole number")
        elif not isinstance(value, str):
            raise ValueError(f"it is {value!r}; use a text")
        if option.name in PATHS and value and not (key == "audit-log" and value == "-"):
            return str(self._folder / value)
        return option.type.convert(value, option, None)

    def _resolve_unix_path(self, address: str) -> str:
        path = address.removeprefix("unix:")
        return address if path == address else f"unix:{self._folder / path}"

    def _address(self, place: str, address: str, index: int) -> str:
        address = _with_counted_port(address, index)
        if not _ADDRESS.fullmatch(address):
            self._add_problem(f"{place} listen", f"{address!r} is no address; use HOST:PORT, HOST:PORT+ or unix:PATH")
        return address

    def _options(self, value: Any) -> dict[str, str]:
        if not (isinstance(value, dict) and all(isinstance(one, (str, int, float)) for one in value.values())):
            raise ValueError(f"it is {value!r}; use a table of texts and numbers")
        return {name: str(one) for name, one in value.items()}

    def _environment(self, value: Any) -> dict[str, str]:
        variables = self._options(value)
        for name in variables:
            if not name or "=" in name or "\0" in name + variables[name]:
                raise ValueError(f"{name!r} can be no environment variable")
        return variables

    def _cpus(self, value: Any) -> tuple[int, ...]:
        """Return the processors named by a list of numbers, or by a text as `taskset` takes it, such as "0-3,8"."""
        parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
        cpus: set[int] = set()
        for part in parts:
            ends = re.fullmatch(r"\s*(\d{1,5})(?:-(\d{1,5}))?\s*", str(part))
            if not ends or isinstance(part, bool):
                raise ValueError(f'it is {value!r}; use numbers of processors, such as "0-3,8" or [0, 1]')
            cpus.update(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
        if not cpus:
            raise ValueError("it names no processor; leave it out, or name some")
        if missing := cpus - os.sched_getaffinity(0):
            usable = ",".join(map(str, sorted(os.sched_getaffinity(0))))
            raise ValueError(f"this host lets it use {usable}, and not {min(missing)}")
        return tuple(sorted(cpus))

    def _nice(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value not in _NICE:
            raise ValueError(f"it is {value!r}; use -20..19")
        return value

    def _seconds(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _LEAST_S <= value <= _MOST_S:
            raise ValueError(f"it is {value!r}; use a number of seconds, {_LEAST_S:g}..{_MOST_S:g}")
        return float(value)

    def _add_problem(self, place: str, what: str) -> None:
        self.problems.append(f"{place}: {what}" if place else what)


def _with_counted_port(address: str, index: int) -> str:
    """Return HOST:PORT+ with the port of the device that stands at `index` in the file, other addresses as they are."""
    counted = _COUNTED_ADDRESS.fullmatch(address)
    return f"{counted[1]}{int(counted[2]) + index}" if counted else address


def _as_texts(value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else value
    if not (isinstance(texts, (list, tuple)) and texts and all(isinstance(text, str) for text in texts)):
        raise ValueError(f"it is {value!r}; use a text, or a list of texts")
    return tuple(texts)
