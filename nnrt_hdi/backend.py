"""The interface that an accelerator vendor implements, and the way in which a daemon finds it.

A backend is a package that names a factory in the entry-point group `nnrt.backends`:

    [project.entry-points."nnrt.backends"]
    acme = "nnrt_backend_acme:create"

`create(options)` returns a Backend, or raises BackendSkipped where its library or hardware is not here.

Where one backend serves several kinds of devices or several of a kind, a function `devices()` says which this host has:

    [project.entry-points."nnrt.devices"]
    acme = "nnrt_backend_acme:devices"

It returns a FoundDevice for each, and soon: it starts none of them. Without it there is what `create({})` makes.
"""

import math
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from importlib.metadata import entry_points

from nnrt_hdi.enums import DeviceStatus, DeviceType, PerformanceMode, Priority
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, TimedOut, Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.part import Part
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import Array, Shape, TensorSpec

ENTRY_POINT_GROUP = "nnrt.backends"
DEVICES_GROUP = "nnrt.devices"
DEFAULT_MAX_TENSOR_BYTES = 1 << 30


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


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The state of a device that changes while its daemon lives, as of the last heartbeat.

    `running` and `queued` are runs, `held_bytes` constants and buffers, of all `sessions`. `out` says why the device
    takes no runs until its canary is right again; empty while it isn't out.
    """

    status: DeviceStatus = DeviceStatus.AVAILABLE
    is_draining: bool = False
    running: int = 0
    queued: int = 0
    held_bytes: int = 0
    sessions: int = 0
    out: str = ""


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
    `restore` gets is from the daemon's own store, where nothing is but what this backend compiled or loaded, and then
    exported; all else may be made up.
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
    """The answer of a device about a node: it runs it, or it doesn't, for a reason in words a person can act on."""

    reason: str = ""

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


class Cancellation:
    """Tells a run to stop: it was cancelled, or its time is over. A backend asks at least between operators."""

    def __init__(self, deadline: float | None = None, reason: NnrtError = _CANCELLED) -> None:
        """`deadline` on the clock of time.monotonic, None for no limit; `reason` is what `check` raises where `cancel`
        gives none."""
        self.deadline = deadline
        self.is_cancelled = False
        # When the run got onto the device, on the clock of time.perf_counter_ns; None before that.
        self.began_ns: int | None = None
        self._cancelled_at = math.inf
        self._reason = reason
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    def cancel(self, reason: NnrtError | None = None) -> None:
        """Ask the run to stop; `reason` is what `check` raises then. Any thread, any number of times: the first one
        counts."""
        with self._lock:
            if not self.is_cancelled:
                self._reason = reason or self._reason
                self._cancelled_at = time.monotonic()
                self.is_cancelled = True
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def on_cancel(self, listener: Callable[[], None]) -> None:
        """Call this once when the run is cancelled, from the thread that cancels; at once if it already was."""
        with self._lock:
            if not self.is_cancelled:
                self._listeners.append(listener)
                return
        listener()

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, as long as a thread can wait at most; None without a deadline."""
        if self.deadline is None:
            return None
        return min(max(self.deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)

    @property
    def overdue_s(self) -> float:
        """Seconds since when the run should have stopped; negative as long as it need not."""
        stops_at = self._cancelled_at if self.deadline is None else min(self._cancelled_at, self.deadline)
        return time.monotonic() - stops_at

    def check(self) -> None:
        """Raise TimedOut or OperationFailed if the run must stop, or what it was cancelled for."""
        if self.is_cancelled:
            raise self._reason.copy()
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise TimedOut("the run took longer than it was given")


class PreparedModel(ABC):
    """A compiled model. `run` may be called from several threads at once."""

    # Inputs and outputs in the order of a run; -1 where a dimension is not known.
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    # Inputs that `run` may get in memory to which the client writes meanwhile, with no worse outcome than wrong numbers
    # (`nnrt_hdi.ops.in_place` tells which). Of all others the daemon makes copies.
    reads_in_place: frozenset[int] = frozenset()
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


class Backend(ABC):
    """One accelerator."""

    # As many runs at a time as make full use of it, where the operator of the daemon doesn't say.
    concurrent_runs = 1

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

    def start(self, run_bytes: int, *, accepts_programs: bool) -> None:
        """Get ready for clients. A daemon calls it once, before anything that takes a model; it returns soon.

        What all runs make at a time is to stay within `run_bytes`, also where `PreparedModel.sizes` can't tell it;
        a run that would pass it ends with OutOfMemory. With `accepts_programs` clients may send what `load_program`
        takes.
        """

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
    """An installed backend: available with its description, skipped with a reason, or broken with a traceback."""

    name: str
    info: DeviceInfo | None = None
    skipped: str = ""
    broken: str = ""
    # Those of this host, of an available backend.
    devices: tuple[FoundDevice, ...] = ()


def backend_names() -> list[str]:
    """Names of the installed backends."""
    return sorted({point.name for point in entry_points(group=ENTRY_POINT_GROUP)})


def load_backend(name: str, options: Mapping[str, str] | None = None) -> Backend:
    """The backend of that name, ready for use.

    Raises InvalidParameter for a name that is not installed, BackendSkipped where it can't work here, and whatever a
    broken one raises.
    """
    points = [point for point in entry_points(group=ENTRY_POINT_GROUP) if point.name == name]
    if not points:
        raise InvalidParameter(f"no backend named {name!r}; installed: {', '.join(backend_names()) or 'none'}")
    factory: Factory = points[0].load()
    return factory(options or {})


def backend_states() -> list[BackendState]:
    """Every installed backend, whether it works here, and the devices that it has."""
    return [_state(name) for name in backend_names()]


def _state(name: str) -> BackendState:
    try:
        backend = load_backend(name)
        try:
            info = backend.describe()
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
