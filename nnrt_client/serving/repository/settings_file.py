"""Reads `model.toml`, the settings of a model.

replicas = { least = 1, most = 4 }
versions = { latest = 2 }
batching = { max_size = 16, max_delay_us = 200 }
canary = { 3 = 0.1 }

[[warm_up]]
image = { shape = [1, 3, 224, 224], content = "random" }
"""

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from nnrt_client.build.way import Way
from nnrt_client.model_session.loading import LoadOptions
from nnrt_client.model_session.partition.fallback import CPU
from nnrt_client.serving.repository.model_settings import Latest, ModelSettings, Scale, Specific, WarmInput
from nnrt_client.serving.repository.paths import read_bounded, require_inside
from nnrt_hdi.batching import Batching
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import InvalidFile, NnrtError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "model.toml"
_MOST_BYTES = 1 << 20
_MOST = 1 << 20
_MOST_S = 86_400.0
_VERSION = re.compile(r"[1-9][0-9]{0,17}")
# Keys whose values are options of `load`.
_OPTIONS = ("batching", "constants", "fallback", "float16", "pin", "priority", "shapes", "ways")
_SCALE = ("requests", "up_after_s", "down_after_s")


def version_number(text: str) -> int | None:
    """Return the number of a version, or None if the text is none."""
    return int(text) if _VERSION.fullmatch(text) else None


def read_settings(path: Path, root: Path, devices: Sequence[str]) -> ModelSettings:
    """Return the settings in a file, whose paths lie beside it.

    Args:
        path: The file.
        root: The folder of the repository, which no path may leave.
        devices: Devices of the server, of which a model may name some.

    Raises:
        InvalidPath: The file can't be read, or a path in it leads out of the repository.
        InvalidFile: It is no TOML, or has unknown keys or wrong values; the message lists all of them.
    """
    try:
        table = tomllib.loads(read_bounded(path, _MOST_BYTES).decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidFile(f"it is no TOML: {error}", place=FILE) from error
    reading = _Reading(path.parent, root, devices)
    settings = reading.settings(table)
    if reading.problems:
        raise InvalidFile("; ".join(reading.problems), place=FILE)
    return settings


class _Reading:
    """Reader of one file, which collects all problems that it finds."""

    def __init__(self, folder: Path, root: Path, devices: Sequence[str]) -> None:
        self.problems: list[str] = []
        self._folder = folder
        self._root = root
        self._devices = devices
        self._converters: dict[str, Callable[[Any], Any]] = {
            "batching": _batching,
            "canary": _canary,
            "constants": _constants,
            "devices": self._known_devices,
            "fallback": lambda given: _one_of(given, (CPU,)),
            "file": _file_name,
            "float16": _boolean,
            "labels": lambda given: {name: self._path(one) for name, one in _table(given).items()},
            "most_waiting": _count,
            "pin": _boolean,
            "priority": lambda given: Priority[_one_of(given, [one.name.lower() for one in Priority]).upper()],
            "replicas": _replicas,
            "scale": _scale,
            "shapes": lambda given: {name: _shape(one) for name, one in _table(given).items()},
            "timeout_s": _seconds,
            "versions": _versions,
            "warm_up": self._warm_up,
            "ways": lambda given: tuple(_one_of(one, [way.value for way in Way]) for one in _list(given)),
        }

    def settings(self, table: Mapping[str, Any]) -> ModelSettings:
        """Return the settings, without those that have a problem."""
        values: dict[str, Any] = {}
        for key, given in table.items():
            try:
                _require_known(key, self._converters)
                values[key] = self._converters[key](given)
            except ValueError as error:
                self.problems.append(f"{key}: {error}")
            except NnrtError as error:
                self.problems.append(f"{key}: {error.message}")
        replicas, scale = values.pop("replicas", None), values.pop("scale", {})
        if isinstance(replicas, Scale):
            values["scale"] = replace(replicas, **scale)
        else:
            values["replicas"] = replicas
            if scale:
                self.problems.append("scale: the number of replicas is fixed; use replicas = { least = 1, most = 4 }")
        options: dict[str, Any] = {key: values.pop(key) for key in _OPTIONS if key in values}
        return ModelSettings(**values, options=LoadOptions(**options))  # type: ignore[typeddict-item]

    def _path(self, given: Any) -> Path:
        return require_inside(self._folder / _text(given), self._folder, self._root)

    def _known_devices(self, given: Any) -> tuple[str, ...]:
        return tuple(_one_of(one, self._devices) for one in _list(given))

    def _warm_up(self, given: Any) -> list[dict[str, WarmInput]]:
        return [{name: self._warm_input(one) for name, one in _table(run).items()} for run in _list(given)]

    def _warm_input(self, given: Any) -> WarmInput:
        table = _table(given, "shape", "content")
        content = _text(table.get("content", "zeros"))
        shape = _shape(table["shape"]) if "shape" in table else None
        if content in ("zeros", "random"):
            return WarmInput(shape, content)
        if not content.endswith(".npy"):
            raise ValueError(f'content is {content!r}; use "zeros", "random" or the name of a .npy file')
        return WarmInput(shape, self._path(content))


# ---- values


def _require_known(key: str, known: Mapping[str, Any] | Sequence[str]) -> None:
    if key not in known:
        near = get_close_matches(key.replace("-", "_"), list(known), 1)
        raise ValueError(f"there is no such setting; {repr(near[0]) + '?' if near else 'use ' + ', '.join(known)}")


def _table(given: Any, *known: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ValueError(f"it is {given!r:.80}; use a table")
    for key in given if known else ():
        try:
            _require_known(key, known)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    return given


def _list(given: Any) -> list[Any]:
    if not isinstance(given, list):
        raise ValueError(f"it is {given!r:.80}; use a list")
    return given


def _text(given: Any) -> str:
    if not isinstance(given, str) or not given or "\0" in given:
        raise ValueError(f"it is {given!r:.80}; use a text")
    return given


def _boolean(given: Any) -> bool:
    if not isinstance(given, bool):
        raise ValueError(f"it is {given!r:.80}; use true or false")
    return given


def _number(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise ValueError(f"it is {given!r:.80}; use a number")
    return given


def _count(given: Any, least: int = 1) -> int:
    if type(given) is not int or not least <= given <= _MOST:
        raise ValueError(f"it is {given!r:.80}; use a whole number, {least}..{_MOST}")
    return given


def _seconds(given: Any) -> float:
    if not 0 < _number(given) <= _MOST_S:
        raise ValueError(f"it is {given!r}; use a number of seconds above 0, of at most {_MOST_S:g}")
    return float(given)


def _one_of(given: Any, known: Sequence[str]) -> str:
    if given not in known:
        raise ValueError(f"it is {given!r:.80}; use {' or '.join(map(repr, known)) or 'none'}")
    return str(given)


def _file_name(given: Any) -> str:
    if Path(_text(given)).name != given:
        raise ValueError(f"it is {given!r:.80}; use the name of a file in the folders of the versions")
    return str(given)


def _shape(given: Any) -> tuple[int, ...]:
    return tuple(_count(dim, 0) for dim in _list(given))


def _constants(given: Any) -> dict[str, Any]:
    def require_tensor(one: Any) -> None:
        for item in one if isinstance(one, list) else ():
            require_tensor(item)
        if not isinstance(one, list | bool | int | float):
            raise ValueError(f"it is {one!r:.80}; use a number, true, false, or lists of them")

    for one in _table(given).values():
        require_tensor(one)
    return dict(given)


def _batching(given: Any) -> Batching:
    return Batching(**_table(given, "max_size", "max_delay_us"))


def _replicas(given: Any) -> int | Scale:
    if not isinstance(given, dict):
        return _count(given)
    table = _table(given, "least", "most")
    least = _count(table.get("least", 1))
    return Scale(least, _count(table.get("most", least), least))


def _scale(given: Any) -> dict[str, Any]:
    return {key: (_count if key == "requests" else _seconds)(one) for key, one in _table(given, *_SCALE).items()}


def _versions(given: Any) -> Latest | Specific | None:
    if given == "all":
        return None
    if not isinstance(given, dict) or len(given) != 1:
        raise ValueError(f'it is {given!r:.80}; use "all", {{ latest = 1 }} or {{ specific = [1, 3] }}')
    table = _table(given, "latest", "specific")
    if "latest" in table:
        return Latest(_count(table["latest"]))
    return Specific(tuple(_count(one) for one in _list(table["specific"])))


def _canary(given: Any) -> dict[int, float]:
    shares: dict[int, float] = {}
    for text, share in _table(given).items():
        number = version_number(text)
        if number is None or not 0 < _number(share) <= 1:
            raise ValueError(f"{text} has {share!r:.80}; use versions with shares above 0, of at most 1")
        shares[number] = float(share)
    if sum(shares.values()) > 1:
        raise ValueError(f"the shares add up to {sum(shares.values()):g}; use at most 1")
    return shares
