"""Description of a device: identity, capabilities, state, and its own measurements."""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from nnrt_hdi.enums import DeviceStatus, DeviceType
from nnrt_hdi.errors import InvalidParameter

NumberT = TypeVar("NumberT", int, float)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Abilities of a device: settings of a ModelConfig that have an effect on it, and kinds of models that it takes."""

    float16_precision: bool = False
    performance_mode: bool = False
    priority: bool = False
    dynamic_input: bool = False
    model_cache: bool = False
    # `PreparedModel.profile` works.
    profiling: bool = False
    # Formats of model files that `Backend.load_program` takes.
    program_formats: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """Identity of a device. Device and vendor name together are unique in a fleet."""

    device_name: str
    vendor_name: str
    device_type: DeviceType
    capabilities: Capabilities
    backend_name: str
    backend_version: str

    @property
    def problem(self) -> str:
        """The first wrong field, its value, and what would be right; empty if all are right."""
        capabilities = self.capabilities
        if not isinstance(capabilities, Capabilities):
            return f"capabilities is {capabilities!r}; give a Capabilities"
        for name in ("device_name", "vendor_name", "backend_name"):
            if not _is_printable(text := getattr(self, name)):
                return f"{name} is {text!r}; give a name that a person can read"
        version = self.backend_version
        if not (_is_printable(version) and version[0].isdecimal()):
            return f"backend_version is {version!r}; give a text that begins with a number, such as '1.4.2 (driver 7)'"
        if not isinstance(self.device_type, DeviceType):
            return f"device_type is {self.device_type!r}; give one of DeviceType"
        for name in Capabilities.__slots__:
            value = getattr(capabilities, name)
            if name == "program_formats":
                if not (isinstance(value, tuple) and all(map(_is_printable, value))):
                    return f"capabilities.{name} is {value!r}; give a tuple of names, such as ('onnx',)"
            elif not isinstance(value, bool):
                return f"capabilities.{name} is {value!r}; give True or False"
        return ""


def _is_printable(text: object) -> bool:
    """Return whether a value is a printable text."""
    return isinstance(text, str) and text.strip() != "" and text.isprintable()


def require_description(described: object, backend: str) -> DeviceInfo:
    """Return a checked description.

    Args:
        described: What `describe` of a backend returned.
        backend: The backend's name, for messages.

    Returns:
        The description.

    Raises:
        InvalidParameter: A field is wrong.
    """
    if not isinstance(described, DeviceInfo):
        problem = f"it is a {type(described).__name__}; give a DeviceInfo"
    else:
        problem = described.problem
        if not problem:
            return described
    raise InvalidParameter(problem, place=f"describe() of backend {backend!r}")


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Measurements of a device by itself; None for what it doesn't measure.

    Memory is the accelerator's own, whoever uses it. `utilization` is the fraction of time in which it computes, 0 to
    1.
    """

    temperature_celsius: float | None = None
    power_watts: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    clock_hertz: float | None = None
    utilization: float | None = None

    def plausible(self) -> "Telemetry":
        """Return a copy with None for impossible values: no number, not finite, negative, or above the maximum."""
        return Telemetry(
            temperature_celsius=_plausible(self.temperature_celsius, float, least=-273.15),
            power_watts=_plausible(self.power_watts, float),
            memory_used_bytes=_plausible(self.memory_used_bytes, int),
            memory_total_bytes=_plausible(self.memory_total_bytes, int),
            clock_hertz=_plausible(self.clock_hertz, float),
            utilization=_plausible(self.utilization, float, most=1.0),
        )


def _plausible(figure: Any, kind: type[NumberT], least: float = 0.0, most: float = 2.0**63) -> NumberT | None:
    """Return a value as a Python number, or None if it is impossible."""
    is_number = isinstance(figure, int | float | np.integer | np.floating)
    return kind(figure) if is_number and least <= figure <= most else None


@dataclass(frozen=True, slots=True)
class DeviceState:
    """State of a device as of the last heartbeat.

    `running` and `queued` are numbers of runs, `held_bytes` are bytes of constants and buffers of all `sessions`. `out`
    says why the canary has taken the device out of service; empty if it hasn't. `telemetry` is None if the device
    measures nothing or has not answered for a while.
    """

    status: DeviceStatus = DeviceStatus.AVAILABLE
    is_draining: bool = False
    running: int = 0
    queued: int = 0
    held_bytes: int = 0
    sessions: int = 0
    out: str = ""
    telemetry: Telemetry | None = None


@dataclass(frozen=True, slots=True)
class CanaryState:
    """Findings of the canary, which regularly runs a small model with a known answer.

    `why` says why the device is out of service; `for_s` is for how many seconds it has been out of or in service. Of
    `runs` trials, `wrong` gave a wrong answer, `late` took too long, `failed` gave no answer; the others were right.
    `last_ns` is the latest answer's time on the device, `usual_ns` the usual time; 0 before the first answer.
    """

    is_out: bool = False
    why: str = ""
    for_s: float = 0.0
    runs: int = 0
    wrong: int = 0
    late: int = 0
    failed: int = 0
    last_ns: int = 0
    usual_ns: int = 0
