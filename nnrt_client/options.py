"""How an application wants its model compiled."""

from dataclasses import dataclass, field, replace

from nnrt_client.device import Device
from nnrt_hdi import wire
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.enums import PerformanceMode, Priority
from nnrt_hdi.errors import InvalidFile, OperationForbidden

# The extension that is none of a device's.
MODEL_NAME = "ModelName"

_REMEDY = "set the same options, or compile it anew (for a cache directory: with a higher version)"


@dataclass(slots=True)
class Options:
    """What has been set, None for what has not; values outside the enums included, which a build refuses."""

    float16: bool | None = None
    mode: int | None = None
    priority: int | None = None
    extensions: dict[str, bytes] = field(default_factory=dict)
    # The runtime's own: what models that share a cache directory are told apart by. No device is told.
    model_name: bytes = b""

    def extend(self, name: str, value: bytes) -> None:
        """Set an extension, or add to one with `|`."""
        if name == MODEL_NAME:
            self.model_name = _joined(self.model_name, value)
        else:
            self.extensions[name] = _joined(self.extensions.get(name, b""), value)

    def config(self, device: Device) -> ModelConfig:
        """All of them, for a device that offers them.

        Raises OperationForbidden for one that it doesn't offer, InvalidParameter for a value outside the enum.
        """
        capabilities = device.capabilities
        _require(device, bool(self.float16), capabilities.float16_precision, "float16")
        _require(device, bool(self.mode), capabilities.performance_mode, "a performance mode")
        mode = wire.known_enum(PerformanceMode, self.mode or 0, "performance mode")
        _require(device, bool(self.priority), capabilities.priority, "a priority")
        priority = wire.known_enum(Priority, self.priority or 0, "priority")
        return ModelConfig(
            enable_float16=bool(self.float16), mode=mode, priority=priority, extensions=dict(self.extensions)
        )

    def require_same(self, compiled: ModelConfig) -> None:
        """Refuse a model that was compiled with other options than those that have been set, with InvalidFile."""
        for what, wanted, was in (
            ("float16", self.float16, compiled.enable_float16),
            ("performance mode", self.mode, compiled.mode),
        ):
            if wanted not in (None, was):
                raise InvalidFile(f"it was compiled with {what} {was!r}, and {wanted!r} is set; {_REMEDY}")
        if self.extensions and self.extensions != compiled.extensions:
            raise InvalidFile(f"it was compiled with other extensions than those that are set; {_REMEDY}")

    def all_set(self) -> "Options":
        """The same, with neutral values where nothing has been set."""
        return replace(self, float16=bool(self.float16), mode=self.mode or 0, priority=self.priority or 0)


def _joined(first: bytes, second: bytes) -> bytes:
    return first + b"|" + second if first else second


def _require(device: Device, is_wanted: bool, is_offered: bool, what: str) -> None:
    if is_wanted and not is_offered:
        raise OperationForbidden(f"{device.name} does not offer {what}; take it back, or another device")
