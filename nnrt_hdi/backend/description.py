"""A device in words and numbers: its identity and capabilities, its state, and what it measures of itself."""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from nnrt_hdi.enums import DeviceStatus, DeviceType
from nnrt_hdi.errors import InvalidParameter

NumberT = TypeVar("NumberT", int, float)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The settings of a ModelConfig that have an effect on a device, and the kinds of models that it takes."""

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
    """The identity of a device. The device and vendor names together are unique in a fleet."""

    device_name: str
    vendor_name: str
    device_type: DeviceType
    capabilities: Capabilities
    backend_name: str
    backend_version: str

    @property
    def problem(self) -> str:
        """The first field that clients couldn't read, what it is, and what would be right; empty where all can be."""
        capabilities = self.capabilities
        if not isinstance(capabilities, Capabilities):
            return f"capabilities is {capabilities!r}; give a Capabilities"
        for name in ("device_name", "vendor_name", "backend_name"):
            if not _is_shown(text := getattr(self, name)):
                return f"{name} is {text!r}; give a name that a person can read"
        version = self.backend_version
        if not (_is_shown(version) and version[0].isdecimal()):
            return f"backend_version is {version!r}; give a text that begins with a number, such as '1.4.2 (driver 7)'"
        if not isinstance(self.device_type, DeviceType):
            return f"device_type is {self.device_type!r}; give one of DeviceType"
        for name in Capabilities.__slots__:
            value = getattr(capabilities, name)
            if name == "program_formats":
                if not (isinstance(value, tuple) and all(map(_is_shown, value))):
                    return f"capabilities.{name} is {value!r}; give a tuple of names, such as ('onnx',)"
            elif not isinstance(value, bool):
                return f"capabilities.{name} is {value!r}; give True or False"
        return ""


def _is_shown(text: object) -> bool:
    """Tell whether this is a text that people can read."""
    return isinstance(text, str) and text.strip() != "" and text.isprintable()


def require_description(described: object, backend: str) -> DeviceInfo:
    """Return what `describe` of a backend gave. Raises InvalidParameter where clients couldn't read it."""
    if not isinstance(described, DeviceInfo):
        problem = f"it is a {type(described).__name__}; give a DeviceInfo"
    else:
        problem = described.problem
        if not problem:
            return described
    raise InvalidParameter(problem, place=f"describe() of backend {backend!r}")


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Figures that a device measures of itself; None where it doesn't.

    Memory is the accelerator's own, whoever uses it. `utilization` is the part of the time that it computes, 0 to 1.
    """

    temperature_celsius: float | None = None
    power_watts: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    clock_hertz: float | None = None
    utilization: float | None = None

    def plausible(self) -> "Telemetry":
        """The figures without those that can't be: what is no number, not finite, below zero, or more than all."""
        return Telemetry(
            temperature_celsius=_plausible(self.temperature_celsius, float, least=-273.15),
            power_watts=_plausible(self.power_watts, float),
            memory_used_bytes=_plausible(self.memory_used_bytes, int),
            memory_total_bytes=_plausible(self.memory_total_bytes, int),
            clock_hertz=_plausible(self.clock_hertz, float),
            utilization=_plausible(self.utilization, float, most=1.0),
        )


def _plausible(figure: Any, kind: type[NumberT], least: float = 0.0, most: float = 2.0**63) -> NumberT | None:
    """A figure as a number of Python's, whatever number it is."""
    is_number = isinstance(figure, int | float | np.integer | np.floating)
    return kind(figure) if is_number and least <= figure <= most else None


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The state of a device that changes while its daemon lives, as of the last heartbeat.

    `running` and `queued` are runs, `held_bytes` constants and buffers, of all `sessions`. `out` says why the device
    takes no runs until its canary is right again; empty while it isn't out. `telemetry` is None where the device
    measures nothing, or has not told for a while.
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
    """The findings of a daemon about its device, on which it runs a small model with a known answer now and then.

    `why` says why it is out, and `for_s` for how many seconds it has been out, or hasn't. Of `runs`, the times that it
    was tried, `wrong` gave a wrong answer, `late` one that took too long, and `failed` none; the others were right.
    `last_ns` is what the latest answer took on the device and `usual_ns` what one usually takes; 0 before the first.
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
