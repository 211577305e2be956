"""Options of a build, as `Compilation`, `load`, pools, ONNX Runtime's interface and the command set them."""

from dataclasses import dataclass, field, replace

from nnrt_client.session.device import Device
from nnrt_hdi import wire
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.batching import Batching
from nnrt_hdi.enums import PerformanceMode, Priority
from nnrt_hdi.errors import InvalidFile, NnrtError, OperationForbidden

# The only extension that no device gets.
MODEL_NAME = "ModelName"

_REMEDY = "set the same options, or compile it anew (for a cache directory: with a higher version)"


def require_offered(device: Device, capability: str, value: int | None, refusal: type[NnrtError]) -> None:
    """Raise an error for an option that the device has no capability for, unless its value is neutral.

    The caller gives the class of the error, because NNRt has two codes: UNAVAILABLE_DEVICE from the function that sets
    the option, OPERATION_FORBIDDEN from the build, whose device may be another one.
    """
    if value and not getattr(device.capabilities, capability):
        raise refusal(
            f"{device.name} does not have the capability {capability}; take the option back, or another device"
        )


@dataclass(slots=True)
class Options:
    """Options that the application has set; an option that it hasn't set is None.

    `config` refuses numbers that PerformanceMode or Priority doesn't have.
    """

    # Compute in half precision.
    float16: bool | None = None
    # How the device trades speed against power, a PerformanceMode.
    performance_mode: int | None = None
    # The priority of the model's runs among those of the same user, a Priority.
    priority: int | None = None
    # Attributes for the backend, which refuses those that it doesn't know.
    extensions: dict[str, bytes] = field(default_factory=dict)
    # How the daemon computes runs together. It doesn't change what the device compiles.
    batching: Batching | None = None
    # Whether the model stays on the device while no run uses it.
    pin: bool = False
    # Distinguishes models that share a cache directory. No device gets it.
    model_name: bytes = b""

    def extend(self, name: str, value: bytes) -> None:
        """Set an extension, or append to its value with `|`."""
        if name == MODEL_NAME:
            self.model_name = _join(self.model_name, value)
        else:
            self.extensions[name] = _join(self.extensions.get(name, b""), value)

    def config(self, device: Device) -> ModelConfig:
        """Return the model configuration for a device that offers these options.

        Raises OperationForbidden for an option that the device doesn't offer, InvalidParameter for a value outside its
        enum.
        """
        require_offered(device, "float16_precision", self.float16, OperationForbidden)
        require_offered(device, "performance_mode", self.performance_mode, OperationForbidden)
        mode = wire.known_enum(PerformanceMode, self.performance_mode or 0, "performance mode")
        require_offered(device, "priority", self.priority, OperationForbidden)
        priority = wire.known_enum(Priority, self.priority or 0, "priority")
        return ModelConfig(
            enable_float16=bool(self.float16), mode=mode, priority=priority, extensions=dict(self.extensions)
        )

    def require_same(self, compiled: ModelConfig) -> None:
        """Raise InvalidFile if a model was compiled with options that differ from those that are set."""
        for what, wanted, was in (
            ("float16", self.float16, compiled.enable_float16),
            ("performance mode", self.performance_mode, compiled.mode),
        ):
            if wanted not in (None, was):
                raise InvalidFile(f"it was compiled with {what} {was!r}, and {wanted!r} is set; {_REMEDY}")
        if self.extensions and self.extensions != compiled.extensions:
            raise InvalidFile(f"it was compiled with other extensions than those that are set; {_REMEDY}")

    def with_neutral_values(self) -> "Options":
        """Return a copy in which each option that is not set has its neutral value."""
        return replace(
            self, float16=bool(self.float16), performance_mode=self.performance_mode or 0, priority=self.priority or 0
        )


def _join(first: bytes, second: bytes) -> bytes:
    return first + b"|" + second if first else second
