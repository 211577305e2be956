"""Interface that a vendor implements: a backend, and the models that it prepares."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

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

DEFAULT_MAX_TENSOR_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Settings of a compilation. The daemon has refused everything that the device's capabilities exclude.

    The last four fields come from the daemon. `max_tensor_bytes`: refuse a run that would make a larger tensor, before
    allocating it. `accepts_programs`: the parts for `restore` may be a program, see `Backend.load_program`. `is_own`:
    this backend itself exported the parts for `restore`: they come from the daemon's store, or the daemon has signed
    them because the backend `has_opaque_exports`. Other parts may be anything. `crashes`: None, or, of a model
    with a process of its own, which may crash: how many processes have crashed while the backend made it.
    """

    enable_float16: bool = False
    mode: PerformanceMode = PerformanceMode.NONE
    priority: Priority = Priority.NONE
    extensions: Mapping[str, bytes] = field(default_factory=dict)
    max_tensor_bytes: int = DEFAULT_MAX_TENSOR_BYTES
    accepts_programs: bool = False
    is_own: bool = False
    crashes: int | None = None


@dataclass(frozen=True, slots=True)
class Support:
    """Answer of a device about a node: it runs the node, or it doesn't, with a reason that a user can act on.

    `note` is for a node that the device runs differently than asked: "computed in 32 bits". Nodes with the same note
    are reported together, so the note should not name the node.
    """

    reason: str = ""
    note: str = ""

    @property
    def supported(self) -> bool:
        """True if the device runs the node."""
        return not self.reason


class Origin(Enum):
    """Origin of a prepared model."""

    COMPILED = "compiled"
    # From a cache or offline model of the application.
    RESTORED = "restored"
    # From the daemon's store.
    STORED = "stored"
    # Compiled or loaded for another session, which uses it, too.
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class DimRange:
    """Smallest and largest shape that an input may have."""

    min_dims: Shape
    max_dims: Shape


class PreparedModel(ABC):
    """Compiled model. Several threads may call `run` at once."""

    # Inputs and outputs in the order of a run; -1 for open dimensions.
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    # Positions of inputs that `run` may get in memory to which the client can write during the run, because the worst
    # effect is wrong outputs (see `nnrt_hdi.ops.in_place`). The daemon copies all other inputs.
    reads_in_place: frozenset[int] = frozenset()
    # Whether runs take regions of `Backend.allocate`'s buffers (`nnrt_hdi.device_buffers`). If True, outputs and inputs
    # in `reads_in_place` are DeviceRegions instead of arrays where they lie in such a buffer, and `run` returns an
    # output's region if it wrote the result there. `sizes` gets the same inputs. An input may overlap an output; the
    # run must then read it as it was before. If False, the daemon passes copies.
    takes_device_buffers = False
    # Most bytes that the model keeps for its runs, besides the model itself. They count against the session's limit.
    kept_bytes: int = 0
    # Bytes that the model takes in memory of the device itself; they count against --resident-bytes. None: it lies in
    # memory of the host, and what it was made of counts.
    device_bytes: int | None = None

    @abstractmethod
    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        """Run the model and return its outputs.

        Args:
            inputs: Read-only arrays, valid until the return. The daemon has checked data types and shapes.
            cancellation: Tells whether the run must stop.
            outputs: Empty; or for each output None, or memory of exactly its data type and shape. A result that is
                written there, and returned as that very array, is not copied again. The client can write there, too, so
                read back nothing but values. If no result is returned, the memory may hold anything.

        Returns:
            C-contiguous arrays with the declared data types and ranks.

        Raises:
            NnrtError: An error that the client can correct, or what `cancellation.check` raises.
            Exception: Anything else is a fault of the device; the client gets UnavailableDevice.
        """

    def profile(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> tuple[list[Array], list[OperatorTime]]:
        """Run the model as `run` does, and measure each operator.

        It may take several times as long. Needed only with the capability profiling.

        Args:
            inputs: As for `run`.
            cancellation: As for `run`.
            outputs: As for `run`.

        Returns:
            The outputs, and a time for each operator, counted from the call.

        Raises:
            Unsupported: The device can't profile; the default.
        """
        raise Unsupported("this device does not profile runs")

    def sizes(self, inputs: Sequence[Array]) -> Sizes:
        """Return the outputs of a run and the memory that it needs, as far as known before the run.

        The daemon calls `run` once that much memory is free, and may pass memory for the outputs if all their shapes
        are known.

        Args:
            inputs: As for `run`.

        Returns:
            The sizes; by default those that follow from `self.outputs`.
        """
        return Sizes(self.outputs, sum(spec.byte_size for spec in self.outputs if not spec.is_dynamic))

    def export(self) -> Sequence[Part]:
        """Return the compiled model for `Backend.restore`.

        Any thread may call this, also during runs, but not after `close`. Needed only with the capability model_cache.

        Returns:
            1 to 100 parts, which may be views of the model's memory. `Part.of` makes a part without a known digest.

        Raises:
            Unsupported: The device can't export; the default.
        """
        raise Unsupported("this device does not export compiled models")

    def input_ranges(self) -> list[DimRange]:
        """Return the smallest and largest shape of each input.

        Returns:
            One range per input.

        Raises:
            Unsupported: The device doesn't say; the default.
        """
        raise Unsupported("this device does not say which shapes it takes")

    def close(self) -> None:
        """Free what the model holds on the device. The daemon doesn't call this during a run."""


class Backend(ABC):
    """Backend of one device: describes the device, compiles models for it, and allocates its memory."""

    # Number of concurrent runs that makes full use of the device; the daemon's operator may set another one.
    concurrent_runs = 1
    # Whether `restore` can't distinguish its own exports from bytes that a client made up. If True, the daemon signs
    # exports, in one of the 100 parts, and passes only signed or stored ones to `restore`.
    has_opaque_exports = False
    # Whether sessions may share a prepared model. Set it to False if a model keeps state of its runs.
    shares_models = True
    # Models that want a process of their own even if all clients are one identity: none, programs or all. None if no
    # model can have one: it is forked after `start` and `supported`, and runs get memory of the host only.
    isolates: str | None = None

    @abstractmethod
    def describe(self) -> DeviceInfo:
        """Return identity and capabilities of the device. They never change."""

    @abstractmethod
    def supported(self, graph: Graph) -> list[Support]:
        """Return for each node whether the device runs it.

        The nodes have passed the checks of `nnrt_hdi.ops`. Large constants may lack their data. Several threads may
        call this at once.

        Args:
            graph: The model.

        Returns:
            One answer per node, in the order of `graph.nodes`.
        """

    @abstractmethod
    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        """Compile a graph whose nodes are all supported.

        Args:
            graph: The model, with the data of all constants.
            config: Settings of the compilation.
            progress: Takes the fraction done, 0 to 1; raises if no client wants the model any more.

        Returns:
            The compiled model.
        """

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        """Load a model that `PreparedModel.export` returned. Its options stay as they were compiled.

        Don't hash the parts: the daemon checks their digests, and if one is wrong, closes the model before any client
        gets it. So cache nothing by a digest. Parts never change, and the model may keep views of them.

        Args:
            parts: What the export returned, or any bytes that a client made up.
            config: Settings, of which only `priority` and those that come from the daemon count.

        Returns:
            The model.

        Raises:
            InvalidFile: The parts are no export of this backend.
            Unsupported: The device can't restore; the default.
        """
        raise Unsupported("this device does not restore compiled models")

    def load_program(
        self, format: str, parts: Sequence[Part], config: ModelConfig, progress: Callable[[float], None]
    ) -> PreparedModel:
        """Load a model file in a format that the device itself reads.

        As for `restore`, parts never change, and a client may have made up any bytes.

        Args:
            format: One of `Capabilities.program_formats`.
            parts: The file.
            config: Settings of the compilation.
            progress: As for `prepare`.

        Returns:
            The model.

        Raises:
            Unsupported: The device doesn't run the model, or takes no model files (the default).
            InvalidFile: The parts are no file of this format, or ask for something that clients may not do.
            OutOfMemory: The model is beyond a limit.
        """
        raise Unsupported("this device takes no model files as they are")

    def holds_program(self, parts: Sequence[Part]) -> bool:
        """Return whether `restore` may load a program from these parts; by default, if the device takes programs."""
        return bool(self.describe().capabilities.program_formats)

    def loading_bytes(self, parts: Sequence[Part], config: ModelConfig) -> int:
        """Return the bytes of the host that `load_program` or `restore` needs besides the parts while it is called.

        Args:
            parts: The parts to load.
            config: Settings of the compilation.

        Returns:
            Bytes, for example of a copy in another process; 0 by default.
        """
        return 0

    def allocate(self, size_bytes: int) -> DeviceBuffer | None:
        """Allocate memory of the device for a client. Any thread may call this.

        The daemon counts it against the client's limit.

        Args:
            size_bytes: Bytes of the buffer.

        Returns:
            A buffer full of zeros; None, the default, for memory of the host.

        Raises:
            OutOfMemory: There is too little memory.
            Exception: Anything but an NnrtError is a fault of the device.
        """
        return None

    def start(self, run_bytes: int, *, accepts_programs: bool) -> None:
        """Get ready for clients. The daemon calls this once, before it passes any model; it must return soon.

        Args:
            run_bytes: Most bytes that all runs together may allocate. A run that would exceed it, which
                `PreparedModel.sizes` can't always foresee, must end with OutOfMemory.
            accepts_programs: Whether clients may send files for `load_program`.
        """

    def telemetry(self) -> Telemetry | None:
        """Return what the device measures of itself now.

        The daemon asks every few seconds, in a thread of its own, also during compilations and runs. If this raises or
        hangs, only the telemetry is missing. The daemon calls it only if the backend overrides it.

        Returns:
            The measurements, or None if the device can't tell now.
        """
        return None

    def fault(self) -> str:
        """Return why the device can compute no more in this process, as after a fault of its driver that stays.

        The daemon asks several times a second. It then tells its clients, and ends; its supervisor starts it again.

        Returns:
            The reason; empty, the default, while the device works.
        """
        return ""

    def close(self) -> None:
        """Release the device."""
