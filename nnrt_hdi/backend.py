"""The interface that an accelerator vendor implements, and the way in which a daemon finds it.

A backend is a package that names a factory in the entry-point group `nnrt.backends`:

    [project.entry-points."nnrt.backends"]
    acme = "nnrt_backend_acme:create"

`create(options)` returns a Backend, or raises BackendSkipped where its library or hardware is not here. A backend that
uses what a later version of this interface added has that version's number behind the group, `nnrt.backends.2`, and is
imported only where there is that version.

Where one backend serves several kinds of devices or several of a kind, a function `devices()` says which this host has:

    [project.entry-points."nnrt.devices"]
    acme = "nnrt_backend_acme:devices"

It returns a FoundDevice for each, and soon: it starts none of them. Without it there is what `create({})` makes.
"""

import logging
import math
import re
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

import numpy as np

from nnrt_hdi.device_buffers import DeviceBuffer
from nnrt_hdi.enums import DeviceStatus, DeviceType, PerformanceMode, Priority
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, TimedOut, Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.part import Part
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import Array, Shape, TensorSpec

_log = logging.getLogger(__name__)

NumberT = TypeVar("NumberT", int, float)

ENTRY_POINT_GROUP = "nnrt.backends"
# It grows by one with a release in which there is more here, or in `nnrt_hdi.ops`, for backends to use or to implement.
INTERFACE_VERSION = 2
DEVICES_GROUP = "nnrt.devices"
DEFAULT_MAX_TENSOR_BYTES = 1 << 30
_GROUP = re.compile(re.escape(ENTRY_POINT_GROUP) + r"(?:\.([1-9]\d{0,8}))?")


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


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The settings of a compilation. The daemon has already refused what the device's capabilities exclude.

    The last three are the daemon's own. `max_tensor_bytes`: refuse a run that would make a larger tensor before taking
    the memory. `accepts_programs`: what `restore` gets may be a program, see `Backend.load_program`. `is_own`: what
    `restore` gets is nothing but what this backend compiled or loaded, and then exported, for it is from the daemon's
    own store, or the backend `has_opaque_exports` and the daemon has signed it; all else may be made up.
    """

    enable_float16: bool = False
    mode: PerformanceMode = PerformanceMode.NONE
    priority: Priority = Priority.NONE
    extensions: Mapping[str, bytes] = field(default_factory=dict)
    max_tensor_bytes: int = DEFAULT_MAX_TENSOR_BYTES
    accepts_programs: bool = False
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class Support:
    """The answer of a device about a node: it runs it, or it doesn't, for a reason in words a person can act on.

    `note` is for a node that it runs, but not quite as asked: "computed in 32 bits". Nodes with the same note are told
    as one, so let it say nothing of the node itself.
    """

    reason: str = ""
    note: str = ""

    @property
    def supported(self) -> bool:
        """True where there is no reason against it."""
        return not self.reason


class Origin(Enum):
    """The way in which a prepared model came to be."""

    COMPILED = "compiled"
    # From the application's cache or offline model.
    RESTORED = "restored"
    # By the daemon, from its own store.
    STORED = "stored"


@dataclass(frozen=True, slots=True)
class DimRange:
    """Smallest and largest shape of an input."""

    min_dims: Shape
    max_dims: Shape


_CANCELLED = OperationFailed("the run was cancelled")
_OUT_OF_TIME = TimedOut("the run took longer than it was given")


def _nothing() -> None:
    """Take back what has been called already."""


class Cancellation:
    """Tells a run to stop: it was cancelled, or its time is over. A backend asks at least between operators."""

    def __init__(self, deadline: float | None = None, reason: NnrtError = _CANCELLED) -> None:
        """`deadline` on the clock of time.monotonic, None for no limit; `reason` is what `check` raises where `cancel`
        gives none."""
        self.deadline = deadline
        self.is_cancelled = False
        # When the run got onto the device, on the clock of time.perf_counter_ns; None before that.
        self.began_ns: int | None = None
        # When the compilation within the run began that is under way, on the same clock; None while there is none.
        self.compiling_since_ns: int | None = None
        self._compiled_s = 0.0
        self._compiled_at = -math.inf
        self._cancelled_at = math.inf
        self._reason = reason
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    def cancel(self, reason: NnrtError | None = None) -> None:
        """Ask the run to stop; `reason` is what `check` raises then. Any thread, any number of times: the first one
        counts. What a listener raises is logged."""
        with self._lock:
            if not self.is_cancelled:
                self._reason = reason or self._reason
                self._cancelled_at = time.monotonic()
                self.is_cancelled = True
        while listener := self._next_listener():
            try:
                listener()
            except BaseException:  # Whoever cancels isn't to blame, and others listen, too.
                _log.exception("a listener failed to stop a run that was cancelled")

    def on_cancel(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call this once when the run is cancelled, from the thread that cancels; at once if it already was.

        Gives what takes the listener back: after that it is not called any more, though another thread may just be
        calling it.
        """
        with self._lock:
            if not self.is_cancelled:
                self._listeners.append(listener)
                return partial(self._take_back, listener)
        listener()
        return _nothing

    def _take_back(self, listener: Callable[[], None]) -> None:
        with self._lock, suppress(ValueError):  # It has been called, or taken back before.
            self._listeners.remove(listener)

    def _next_listener(self) -> Callable[[], None] | None:
        with self._lock:
            return self._listeners.pop(0) if self._listeners else None

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, as long as a thread can wait at most; None without a deadline."""
        if self.deadline is None:
            return None
        return min(max(self.deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Compile something for the run in this block, or wait for that: the daemon's bound for compilations counts
        there, and not that for runs. One block at a time. At its end it raises what `check` raises."""
        began_ns = self.compiling_since_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self._compiled_s += (time.perf_counter_ns() - began_ns) / 1e9
            self._compiled_at = time.monotonic()
            self.compiling_since_ns = None
        self.check()

    @property
    def on_device_s(self) -> float:
        """Seconds that the run has been on the device, without its compilations that are over."""
        now_ns = time.perf_counter_ns()
        return (now_ns - (self.began_ns or now_ns)) / 1e9 - self._compiled_s

    @property
    def overdue_s(self) -> float:
        """Seconds since when the run should have stopped, or could after a compilation; negative while it need not."""
        stops_at = self._cancelled_at if self.deadline is None else min(self._cancelled_at, self.deadline)
        return time.monotonic() - max(stops_at, self._compiled_at)

    def check(self) -> None:
        """Raise TimedOut or OperationFailed if the run must stop, or what it was cancelled for."""
        if self.is_cancelled:
            raise self._reason.copy()
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise _OUT_OF_TIME.copy()

    def expire(self) -> None:
        """Cancel the run because its deadline has passed."""
        self.cancel(_OUT_OF_TIME)


class PreparedModel(ABC):
    """A compiled model. `run` may be called from several threads at once."""

    # Inputs and outputs in the order of a run; -1 where a dimension is not known.
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    # Inputs that `run` may get in memory to which the client writes meanwhile, with no worse outcome than wrong numbers
    # (`nnrt_hdi.ops.in_place` tells which). Of all others the daemon makes copies.
    reads_in_place: frozenset[int] = frozenset()
    # Whether its runs take regions of `Backend.allocate`'s buffers (`nnrt_hdi.device_buffers`). An input in
    # `reads_in_place` and any output is then a DeviceRegion, not an array, where it lies in such a buffer; what is
    # written to an output's region is returned as that very region. `sizes` gets the same inputs. An input may overlap
    # an output, and counts as it was before the run. Other models get copies of what lies in such buffers.
    takes_device_buffers = False
    # What the model keeps of runs at most, besides what it was made of. It counts as held by the session.
    kept_bytes: int = 0

    @abstractmethod
    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        """Run the model. Data types and shapes of `inputs` have been checked against `self.inputs`; the arrays are
        read-only and valid only until the return.

        `outputs` is empty, or has for each output None, or memory of exactly its data type and shape: a result that is
        written there, and returned as that very array, is not copied again. The client can write there too, so nothing
        may be read back from it but values. Where no result has been returned, it may hold anything.

        Raises what `cancellation.check` raises, an NnrtError where the client can mend it, and anything else for a
        fault of the device, which the client is told as UnavailableDevice.
        """

    def profile(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> tuple[list[Array], list[OperatorTime]]:
        """Run the model as `run` does, and tell what each operator took since the call.

        It may take several times as long. Needed only with the capability profiling.
        """
        raise Unsupported("this device does not profile runs")

    def sizes(self, inputs: Sequence[Array]) -> Sizes:
        """The outputs of a run with these inputs and the memory that it takes, as far as they are known before.

        So much is free when `run` is called, and outputs whose shapes are all known may be given memory.

        By default what `self.outputs` says of all runs. Raises as `run`.
        """
        return Sizes(self.outputs, sum(spec.byte_size for spec in self.outputs if not spec.is_dynamic))

    def export(self) -> Sequence[Part]:
        """The compiled model as `Backend.restore` takes it: 1 to 100 parts.

        `Part.of` makes one where no digest is known. A part may be a view of what the model holds. Any thread may call
        it, also while runs are under way; `close` comes after it.
        Needed only with the capability model_cache.
        """
        raise Unsupported("this device does not export compiled models")

    def input_ranges(self) -> list[DimRange]:
        """Smallest and largest shape of each input. Raises Unsupported, as by default, where the device doesn't say."""
        raise Unsupported("this device does not say which shapes it takes")

    def close(self) -> None:
        """Free what the model holds on the device. Not called while a run is under way."""


# How a run ended: its outputs, or what it failed with.
RunEnd = Sequence[Array] | BaseException


class FirstEnd:
    """Passes on the first end of a run, from whichever thread. Another one is logged."""

    __slots__ = ("_on_ends",)

    def __init__(self, on_end: Callable[[RunEnd], object]) -> None:
        # In a list, of which one thread can take it; and a backend that keeps this keeps nothing of the run.
        self._on_ends = [on_end]

    def __call__(self, end: RunEnd) -> None:
        try:
            on_end = self._on_ends.pop()
        except IndexError:
            failure = end if isinstance(end, BaseException) else None
            _log.error("the backend ended a run that had ended already; the second end is ignored", exc_info=failure)
        else:
            on_end(end)


class StartableModel(PreparedModel):
    """A compiled model of a device that works on several runs without a thread for each: `start` takes the place of
    `run`, and a run's results come later."""

    @abstractmethod
    def start(
        self,
        inputs: Sequence[Array],
        cancellation: Cancellation,
        outputs: Sequence[Array | None],
        on_end: Callable[[RunEnd], None],
    ) -> None:
        """Start a run, and return without waiting for the device. Called from several threads at once.

        `inputs` and `outputs` are those of `run`, and stay valid until `on_end` is called.

        `on_end` takes what `run` would return or raise. It is called exactly once for each run that has been started,
        from any thread: also before this returns, and for a run that was cancelled. The device touches no memory of the
        run any more then. The call reads and sends the results, waits for no client, and raises nothing. A second one
        is ignored, and logged.

        A cancelled run is to end soon, in whatever way: its results go nowhere. To learn of it, listen to
        `cancellation`, which is cancelled at its deadline too; take the listener back before `on_end` if what it would
        stop is gone by then. A run that doesn't end when it was to counts as a stuck device.

        What this raises, it raises as `run` does, and has then started nothing: `on_end` is not called.

        `close` comes after `on_end` of every run, never from within it.
        """

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        """Start a run, and wait for its end."""
        ends: SimpleQueue[RunEnd] = SimpleQueue()
        self.start(inputs, cancellation, outputs, FirstEnd(ends.put))
        try:
            end = ends.get(timeout=cancellation.remaining)
        except Empty:
            cancellation.expire()
            end = ends.get()
        if isinstance(end, BaseException):
            raise end
        # Whoever asked for it looks at what else it may be.
        return list(end) if isinstance(end, tuple) else cast("list[Array]", end)


class Backend(ABC):
    """One accelerator."""

    # As many runs at a time as make full use of it, where the operator of the daemon doesn't say.
    concurrent_runs = 1
    # True where `restore` can't tell what its own models exported from what a client has made up: the daemon signs what
    # they export then, in one part more of the 100, and gives `restore` nothing but what it has signed or stored.
    has_opaque_exports = False

    @abstractmethod
    def describe(self) -> DeviceInfo:
        """The identity and the capabilities of the device. They never change."""

    @abstractmethod
    def supported(self, graph: Graph) -> list[Support]:
        """Per node, whether the device runs it. The nodes have passed `nnrt_hdi.ops`; large constants may be absent."""

    @abstractmethod
    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        """Compile a graph whose nodes are all supported. `progress` takes the fraction done."""

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        """Load what `PreparedModel.export` gave. Raises InvalidFile for anything else, whatever a client has made up.

        Each part has the digest it comes with, or the model is closed before anybody gets it: there is no need to hash
        it again. The parts never change, and the model may keep views of them; nothing else may be kept by a digest.
        Options it was compiled with stay as they were.
        """
        raise Unsupported("this device does not restore compiled models")

    def load_program(
        self, format: str, parts: Sequence[Part], config: ModelConfig, progress: Callable[[float], None]
    ) -> PreparedModel:
        """Load a model file of a format that the device has of its own: one of the capability program_formats.

        As with `restore` the parts never change, and come from anybody. Raises Unsupported for what the device doesn't
        run, InvalidFile for what is no such file, or holds what no client may ask for, OutOfMemory beyond a limit.
        """
        raise Unsupported("this device takes no model files as they are")

    def loading_bytes(self, parts: Sequence[Part], config: ModelConfig) -> int:
        """Bytes of the host that `load_program` or `restore` takes besides these parts until it returns, such as for a
        copy in another process. The daemon reserves them before the call. 0 by default."""
        return 0

    def allocate(self, size_bytes: int) -> DeviceBuffer | None:
        """Memory of the device for a client, all zero; None, as by default, where that is to be memory of the host.

        The daemon counts it in what the client may hold. Any thread may call it. Raises OutOfMemory where there is too
        little; anything else but an NnrtError is a fault of the device.
        """
        return None

    def start(self, run_bytes: int, *, accepts_programs: bool) -> None:
        """Get ready for clients. A daemon calls it once, before anything that takes a model; it returns soon.

        What all runs make at a time is to stay within `run_bytes`, also where `PreparedModel.sizes` can't tell it;
        a run that would pass it ends with OutOfMemory. With `accepts_programs` clients may send what `load_program`
        takes.
        """

    def telemetry(self) -> Telemetry | None:
        """What the device measures of itself, at this moment; None where it can't tell now.

        A daemon asks every few seconds, in a thread of its own, also while models are compiled and run. One that raises
        or doesn't return harms nobody, but then nobody learns anything; by default it is never called.
        """
        return None

    def close(self) -> None:
        """Let go of the device."""


class BackendSkipped(Exception):
    """Raised by a factory: the backend is sound, but its library or hardware is not here. The message says which."""


Factory = Callable[[Mapping[str, str]], Backend]


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """A device of this host: a name that tells it from others, and the options with which its backend serves it."""

    name: str
    device_type: DeviceType
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BackendState:
    """An installed backend: available with its description, skipped with a reason, broken with a traceback, or too new,
    with what would be right."""

    name: str
    info: DeviceInfo | None = None
    skipped: str = ""
    broken: str = ""
    too_new: str = ""
    # The version of this interface that it needs.
    interface: int = 1
    # Those of this host, of an available backend.
    devices: tuple[FoundDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class _Plugin:
    """Names the factory of an installed backend, which has not been imported, and the interface that it needs."""

    point: EntryPoint
    interface: int

    @property
    def too_new(self) -> str:
        """Why it can't be used with this interface, and what would be right; empty where it can."""
        if self.interface <= INTERFACE_VERSION:
            return ""
        return f"needs interface {self.interface}, this is {INTERFACE_VERSION}: update nnrt"


def backend_names() -> list[str]:
    """Names of the installed backends."""
    return sorted(_plugins())


def load_backend(name: str, options: Mapping[str, str] | None = None) -> Backend:
    """The backend of that name, ready for use.

    Raises InvalidParameter for a name that is not installed, Unsupported for one that needs a newer interface,
    BackendSkipped where it can't work here, and whatever a broken one raises.
    """
    factory: Factory = _usable(name).point.load()
    return factory(options or {})


def require_backend(name: str) -> None:
    """Raise what `load_backend` does for one that isn't installed, or needs a newer interface. Imports nothing."""
    _usable(name)


def backend_states() -> list[BackendState]:
    """Every installed backend, whether it works here, and the devices that it has."""
    return [replace(_state(name, plugin), interface=plugin.interface) for name, plugin in sorted(_plugins().items())]


def _plugins() -> dict[str, _Plugin]:
    """The installed backends by name; of one with factories for several interfaces the newest that is known here."""
    plugins: dict[str, _Plugin] = {}
    points = entry_points()
    for group in points.groups:
        if match := _GROUP.fullmatch(group):
            interface = int(match[1] or 1)
            for point in points.select(group=group):
                known = plugins.get(point.name)
                if known is None or _preference(interface) > _preference(known.interface):
                    plugins[point.name] = _Plugin(point, interface)
    return plugins


def _usable(name: str) -> _Plugin:
    plugins = _plugins()
    if name not in plugins:
        raise InvalidParameter(f"no backend named {name!r}; installed: {', '.join(sorted(plugins)) or 'none'}")
    if plugins[name].too_new:
        raise Unsupported(f"backend {name!r} {plugins[name].too_new}")
    return plugins[name]


def _preference(interface: int) -> int:
    return interface if interface <= INTERFACE_VERSION else -interface


def _state(name: str, plugin: _Plugin) -> BackendState:
    if plugin.too_new:
        return BackendState(name, too_new=plugin.too_new)
    try:
        backend = load_backend(name)
        try:
            info = require_description(backend.describe(), name)
        finally:
            backend.close()
        return BackendState(name, info, devices=tuple(_devices(name, info)))
    except BackendSkipped as reason:
        return BackendState(name, skipped=str(reason))
    except Exception:
        return BackendState(name, broken=traceback.format_exc())


def _devices(name: str, info: DeviceInfo) -> Sequence[FoundDevice]:
    points = [point for point in entry_points(group=DEVICES_GROUP) if point.name == name]
    if not points:
        return [FoundDevice(name, info.device_type)]
    find: Callable[[], Sequence[FoundDevice]] = points[0].load()
    return find()
