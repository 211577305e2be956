"""Backends with special behaviour for tests, which daemons find through entry points like a vendor's.

Each computes the identity of its first input, and logs the start of each run and the end of each model, which no RPC
reports.
"""

import ctypes
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from nnrt_hdi.backend import (
    Backend,
    BackendSkipped,
    Cancellation,
    Capabilities,
    DeviceInfo,
    DimRange,
    FoundDevice,
    ModelConfig,
    PreparedModel,
    Support,
)
from nnrt_hdi.enums import DeviceType, NodeType
from nnrt_hdi.errors import InvalidFile, OperationFailed, Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import Array, TensorSpec

_log = logging.getLogger(__name__)

RunFunction = Callable[[Sequence[Array], Cancellation], list[Array]]


_LARGEST_DIM = 64


class _Model(PreparedModel):
    def __init__(self, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], run: RunFunction) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._run = run

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        _log.info("run started with %s", inputs[0].flat[0])
        return self._run(inputs, cancellation)

    def export(self) -> Sequence[Part]:
        _log.info("model exported")
        return [Part.of(b"compiled"), Part.of(bytes(range(256)) * 4096)]

    def input_ranges(self) -> list[DimRange]:
        return [
            DimRange(
                tuple(1 if size < 0 else size for size in spec.shape),
                tuple(_LARGEST_DIM if size < 0 else size for size in spec.shape),
            )
            for spec in self.inputs
        ]

    def close(self) -> None:
        _log.info("model closed")


class _Backend(Backend):
    def __init__(self, name: str, run: RunFunction, capabilities: Capabilities) -> None:
        self._name = name
        self._run = run
        self._capabilities = capabilities
        self._exported: tuple[TensorSpec, ...] = ()

    def describe(self) -> DeviceInfo:
        return DeviceInfo(self._name, "test", DeviceType.OTHER, self._capabilities, self._name, "0")

    def supported(self, graph: Graph) -> list[Support]:
        return [Support() for _ in graph.nodes]

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        _log.info(
            "compiled with %s %s %s %s",
            config.enable_float16,
            config.mode.name,
            config.priority.name,
            sorted(config.extensions.items()),
        )
        self._exported = graph.input_specs
        return _Model(graph.input_specs, graph.output_specs, self._run)

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        if list(parts) != list(_Model((), (), self._run).export()):
            raise InvalidFile("this is no model of the test backend")
        return _Model(self._exported, self._exported, self._run)


def _identity(inputs: Sequence[Array], cancellation: Cancellation) -> list[Array]:
    return [inputs[0]]


def _until_cancelled(inputs: Sequence[Array], cancellation: Cancellation) -> list[Array]:
    """Run until cancellation or the deadline, like a kernel that checks between operators."""
    stop = threading.Event()
    cancellation.on_cancel(stop.set)
    stop.wait(cancellation.remaining)
    cancellation.check()
    return [inputs[0]]


def _hold_the_interpreter(sign: bytes, inputs: Sequence[Array], cancellation: Cancellation) -> list[Array]:
    """Block all Python threads, but not gRPC's.

    PyDLL keeps the GIL during calls.
    """
    library = ctypes.PyDLL(None)
    library.creat(sign, 0o600)
    library.pause()
    return [inputs[0]]


def _until_the_gate_opens(gate: Path, inputs: Sequence[Array], cancellation: Cancellation) -> list[Array]:
    """Run until the gate opens, ignoring cancellation."""
    gate.read_bytes()
    return [inputs[0]]


def _for_a_while(seconds: float, inputs: Sequence[Array], cancellation: Cancellation) -> list[Array]:
    threading.Event().wait(seconds)
    return [inputs[0]]


class _PickyBackend(_Backend):
    def supported(self, graph: Graph) -> list[Support]:
        refused = {
            NodeType.SUB_FUSION: Support("the picky backend runs no SUB"),
            NodeType.RESHAPE: Support("the picky backend runs no RESHAPE"),
        }
        return [refused.get(node.type, Support()) for node in graph.nodes]


class _RefusingBackend(_Backend):
    def supported(self, graph: Graph) -> list[Support]:
        return [Support("this backend runs nothing") for _ in graph.nodes]


class _SilentModel(_Model):
    def input_ranges(self) -> list[DimRange]:
        raise Unsupported("this device does not say which shapes it takes")


class _SilentBackend(_Backend):
    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        return _SilentModel(graph.input_specs, graph.output_specs, self._run)


class _PlainModel(_Model):
    export = PreparedModel.export


class _PlainBackend(_Backend):
    restore = Backend.restore

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        return _PlainModel(graph.input_specs, graph.output_specs, self._run)


class _SlowCompiler(_Backend):
    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        while True:  # `progress` raises when the client gives up.
            progress(0.5)
            threading.Event().wait(0.02)


class _GatedCompiler(_Backend):
    def __init__(self, gate: Path) -> None:
        super().__init__("building", _identity, Capabilities(dynamic_input=True))
        self._gate = gate

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        progress(0.5)
        self._gate.read_bytes()
        return super().prepare(graph, config, progress)


class _LateCompiler(_Backend):
    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        try:
            while True:
                progress(0.5)
                threading.Event().wait(0.02)
        except OperationFailed:  # The client gave up.
            return super().prepare(graph, config, progress)


def slow(options: Mapping[str, str]) -> Backend:
    """Create a backend whose runs end only by cancellation or by their deadline."""
    return _Backend("slow", _until_cancelled, Capabilities(dynamic_input=True))


def hanging(options: Mapping[str, str]) -> Backend:
    """Create a backend whose runs block the interpreter, after creating the file of the option `sign`."""
    hold = partial(_hold_the_interpreter, options["sign"].encode())
    return _Backend("hanging", hold, Capabilities(dynamic_input=True))


def gated(options: Mapping[str, str]) -> Backend:
    """Create a backend whose runs end when a test has opened and closed the FIFO `gate` for writing."""
    run = partial(_until_the_gate_opens, Path(options["gate"]))
    return _Backend("gated", run, Capabilities(dynamic_input=True, priority=True))


def steady(options: Mapping[str, str]) -> Backend:
    """Create a backend whose runs take as many seconds as the option `seconds` says."""
    run = partial(_for_a_while, float(options["seconds"]))
    return _Backend("steady", run, Capabilities(dynamic_input=True, priority=True))


def paced(options: Mapping[str, str]) -> Backend:
    """Create a backend whose runs take the seconds in the file of the option `file`, and fail if it is empty."""
    file = Path(options["file"])

    def run(inputs: Sequence[Array], cancellation: Cancellation) -> list[Array]:
        return _for_a_while(float(file.read_text()), inputs, cancellation)

    return _Backend("paced", run, Capabilities(dynamic_input=True))


def compiling(options: Mapping[str, str]) -> Backend:
    """Create a backend whose compilations end only when the client gives up."""
    return _SlowCompiler("compiling", _identity, Capabilities(dynamic_input=True))


def building(options: Mapping[str, str]) -> Backend:
    """Create a backend whose compilations end when a test has opened and closed the FIFO `gate` for writing."""
    return _GatedCompiler(Path(options["gate"]))


def late(options: Mapping[str, str]) -> Backend:
    """Create a backend whose compilations succeed after the client has given up."""
    return _LateCompiler("late", _identity, Capabilities(dynamic_input=True))


def picky(options: Mapping[str, str]) -> Backend:
    """Create a backend that refuses two operators."""
    return _PickyBackend("picky", _identity, Capabilities(dynamic_input=True))


def nothing(options: Mapping[str, str]) -> Backend:
    """Create a backend that refuses all operators."""
    return _RefusingBackend("nothing", _identity, Capabilities())


def silent(options: Mapping[str, str]) -> Backend:
    """Create a backend that reports no shape ranges."""
    return _SilentBackend("silent", _identity, Capabilities(dynamic_input=True))


def plain(options: Mapping[str, str]) -> Backend:
    """Create a backend with no capability but dynamic inputs."""
    return _PlainBackend("plain", _identity, Capabilities(dynamic_input=True))


def shared_device() -> list[FoundDevice]:
    """Return the device that the backends `late` and `plain` both find."""
    return [FoundDevice("shared-0", DeviceType.OTHER, hardware="test:0")]


def cached(options: Mapping[str, str]) -> Backend:
    """Create a backend with all capabilities."""
    return _Backend("cached", _identity, Capabilities(True, True, True, True, True))


def skipped(options: Mapping[str, str]) -> Backend:
    raise BackendSkipped("there is no such accelerator")


def broken(options: Mapping[str, str]) -> Backend:
    raise ZeroDivisionError("the vendor's mistake")
