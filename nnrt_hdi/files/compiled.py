"""Compiled models as files: a device's export, and what is needed to load it again.

Client caches, offline models and entries of a daemon's store are such files.
"""

import math
import reprlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import Buffer

from nnrt_hdi.backend import DeviceInfo, ModelConfig
from nnrt_hdi.enums import DeviceType, PerformanceMode
from nnrt_hdi.errors import InvalidFile, InvalidParameter, NnrtError
from nnrt_hdi.files.container import Fetch, packed, read_about, require_whole, unpacked, unpacked_from_file
from nnrt_hdi.files.graph_file import MAX_QUOTED, described_spec, read_end_spec
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import TensorSpec

KIND = "compiled model"

# NNRt's limit for cache files.
MAX_PARTS = 100
MAX_VERSION = 2**32 - 1

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Target:
    """Device for which a model was compiled."""

    # Unique name of the device: device, vendor, HDI version.
    device: str
    vendor: str
    device_type: DeviceType
    backend: str
    backend_version: str

    @classmethod
    def of(cls, info: DeviceInfo, unique_name: str) -> "Target":
        return cls(
            device=unique_name,
            vendor=info.vendor_name,
            device_type=info.device_type,
            backend=info.backend_name,
            backend_version=info.backend_version,
        )

    @property
    def kind(self) -> tuple[object, ...]:
        """Properties that devices share if they can load each other's models."""
        return self.vendor, self.device_type, self.backend, self.backend_version

    def describe_kind(self) -> str:
        """Return the kind for messages."""
        return f"{self.backend} {self.backend_version} ({self.vendor}, {self.device_type.name})"


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """Compiled model with its manifest."""

    target: Target
    # SHA-256 of the source: in clients `graph_digest`, in daemons see `Recipe` in `store_directory`.
    source_digest: bytes
    config: ModelConfig
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    # Version that the application gave its cache.
    version: int
    parts: Sequence[Part]
    # Seconds of the build, from the support check to the compiled model; None if unknown.
    build_s: float | None = None
    # Notes of the device about nodes (`Support.note`), with the number of nodes.
    notes: Mapping[str, int] = field(default_factory=dict)

    def packed(self, beside: Collection[bytes] = ()) -> list[Buffer]:
        """Return the file as consecutive pieces; see `container.packed`.

        Raises:
            InvalidParameter: The file could not be read back.
        """
        target, config = self.target, self.config
        about: dict[str, Any] = {
            "device": target.device,
            "vendor": target.vendor,
            "device_type": target.device_type.name,
            "backend": target.backend,
            "backend_version": target.backend_version,
            "source": self.source_digest.hex(),
            # Without the priority, which each user of the model chooses.
            "float16": config.enable_float16,
            "mode": config.mode.name,
            "extensions": {name: value.hex() for name, value in config.extensions.items()},
            "inputs": [described_spec(spec) for spec in self.inputs],
            "outputs": [described_spec(spec) for spec in self.outputs],
            "version": self.version,
            "build_s": self.build_s,
        }
        if self.notes:
            about["notes"] = dict(self.notes)
        try:
            self._of(about, _counted(self.parts))
        except InvalidFile as error:
            raise InvalidParameter(f"no file can hold this compiled model: {error.message}") from error
        return packed(KIND, about, self.parts, beside)

    @classmethod
    def unpacked(cls, data: Buffer, fetch: Fetch | None = None, *, checks_large: bool = True) -> "CompiledModel":
        """Return the model in a file, with parts as views of `data`, or fetched from beside the file.

        Without `checks_large`, `require_whole` checks large parts later.

        Raises:
            InvalidFile: A byte differs from what was written.
        """
        about, parts = unpacked(KIND, data, fetch, checks_large=checks_large)
        return cls._of(about, _counted(parts))

    @classmethod
    def in_file(cls, path: Path) -> "CompiledModel":
        """Return the model in a file, with large parts left there, unchecked. Raise OSError or InvalidFile."""
        about, parts = unpacked_from_file(KIND, path)
        return cls._of(about, _counted(parts))

    def require_whole(self) -> None:
        """Raise InvalidFile if a part differs from what was written."""
        for number, part in enumerate(self.parts):
            require_whole(number, part)

    @classmethod
    def without_parts(cls, path: Path) -> "CompiledModel":
        """Return the model in a file without its parts, which aren't read. Raise OSError or InvalidFile."""
        return cls._of(read_about(KIND, path), ())

    @classmethod
    def _of(cls, about: dict[str, Any], parts: Sequence[Part]) -> "CompiledModel":
        try:
            return cls(
                target=Target(
                    device=_of_type(str, about, "device"),
                    vendor=_of_type(str, about, "vendor"),
                    device_type=DeviceType[about["device_type"]],
                    backend=_of_type(str, about, "backend"),
                    backend_version=_of_type(str, about, "backend_version"),
                ),
                source_digest=bytes.fromhex(about["source"]),
                config=ModelConfig(
                    enable_float16=_of_type(bool, about, "float16"),
                    mode=PerformanceMode[about["mode"]],
                    extensions={name: bytes.fromhex(value) for name, value in about["extensions"].items()},
                ),
                inputs=tuple(read_end_spec(spec) for spec in _of_type(list, about, "inputs")),
                outputs=tuple(read_end_spec(spec) for spec in _of_type(list, about, "outputs")),
                version=_version(about),
                parts=parts,
                build_s=_seconds(about),
                notes=_notes(about),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, NnrtError) as error:
            raise InvalidFile(
                f"its manifest is not that of a compiled model: {type(error).__name__} {str(error)[:MAX_QUOTED]}"
            ) from error


def _counted(parts: Sequence[Part]) -> Sequence[Part]:
    if not 1 <= len(parts) <= MAX_PARTS:
        raise InvalidFile(f"it has {len(parts)} parts; a compiled model has 1..{MAX_PARTS}")
    return parts


def _of_type(kind: type[ValueT], about: dict[str, Any], name: str) -> ValueT:
    value = about[name]
    if type(value) is not kind:
        raise TypeError(f"{name} is {reprlib.repr(value)}, no {kind.__name__}")
    return value


def _version(about: dict[str, Any]) -> int:
    version = _of_type(int, about, "version")
    if version not in range(MAX_VERSION + 1):
        raise ValueError(f"version is {reprlib.repr(version)}; it is 0..{MAX_VERSION}")
    return version


def _notes(about: dict[str, Any]) -> Mapping[str, int]:
    notes = _of_type(dict, about, "notes") if "notes" in about else {}
    if not all(type(count) is int and count > 0 for count in notes.values()):
        raise ValueError(f"notes is {reprlib.repr(notes)}; it is a count for each note")
    return dict(notes)


def _seconds(about: dict[str, Any]) -> float | None:
    if about["build_s"] is None:
        return None
    seconds = _of_type(float, about, "build_s")
    if not 0 <= seconds < math.inf:
        raise ValueError(f"build_s is {seconds!r}; it is a number of seconds")
    return seconds
