"""The interface that a vendor implements: a backend, and the models that it prepares."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from queue import Empty, SimpleQueue
from typing import cast

from nnrt_hdi.backend.cancellation import Cancellation
from nnrt_hdi.backend.description import DeviceInfo, Telemetry
from nnrt_hdi.device_buffers import DeviceBuffer
from nnrt_hdi.enums import PerformanceMode, Priority
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.part import Part
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import Array, Shape, TensorSpec

_log = logging.getLogger(__name__)

DEFAULT_MAX_TENSOR_BYTES = 1 << 30


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
