"""Backend of the device that computes with the reference kernels."""

import sys
from collections.abc import Callable, Mapping, Sequence

from nnrt_backend_reference.kernels import KERNELS
from nnrt_backend_reference.program import KIND, Program
from nnrt_hdi import __version__
from nnrt_hdi.backend import Backend, Capabilities, DeviceInfo, ModelConfig, Support
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import InvalidFile, InvalidParameter, NnrtError, OutOfMemory, Unsupported
from nnrt_hdi.files.exported_graph import read_exported
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import inferred_graph
from nnrt_hdi.part import Part

OPTIONS = ("name",)


def create(options: Mapping[str, str]) -> "ReferenceBackend":
    """Return the backend; the entry point's factory. Option `name` names the device, by default 'reference'."""
    for option in options:
        if option not in OPTIONS:
            raise InvalidParameter(f"the reference backend has no option {option!r}; it has {', '.join(OPTIONS)}")
    return ReferenceBackend(**options)


class ReferenceBackend(Backend):
    """Backend of a CPU that computes with numpy, one operator after the other.

    It has no performance modes, because it has only one way to compute.
    """

    isolates = "none"

    def __init__(self, name: str = "reference") -> None:
        self._run_bytes = sys.maxsize
        self._info = DeviceInfo(
            device_name=name,
            vendor_name="nnrt",
            device_type=DeviceType.CPU,
            capabilities=Capabilities(
                float16_precision=True, priority=True, dynamic_input=True, model_cache=True, profiling=True
            ),
            backend_name="reference",
            backend_version=__version__,
        )

    def describe(self) -> DeviceInfo:
        return self._info

    def start(self, run_bytes: int, *, accepts_programs: bool) -> None:
        self._run_bytes = run_bytes

    def supported(self, graph: Graph) -> list[Support]:
        """Return the support of each node: whether its type has a kernel. `nnrt_hdi.ops` has checked its operands."""
        return [
            Support() if node.type in KERNELS else Support(f"the reference backend has no {node.type.name} kernel")
            for node in graph.nodes
        ]

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> Program:
        _refuse_extensions(config)
        self._require_supported(graph)
        program = Program(
            inferred_graph(graph), config.max_tensor_bytes, self._run_bytes, enable_float16=config.enable_float16
        )
        progress(1.0)
        return program

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> Program:
        """Load an exported program.

        Raises:
            InvalidFile: The parts aren't a program that this backend exported.
            OutOfMemory: The program is too large for the daemon.
        """
        _refuse_extensions(config)
        graph, enable_float16 = read_exported(KIND, parts)
        try:
            self._require_supported(graph)
            return Program(graph, config.max_tensor_bytes, self._run_bytes, enable_float16)
        except (InvalidFile, OutOfMemory):
            raise
        except NnrtError as error:
            raise InvalidFile(error.message, place=error.place) from error

    def _require_supported(self, graph: Graph) -> None:
        for index, support in enumerate(self.supported(graph)):
            if not support.supported:
                raise Unsupported(support.reason, place=graph.place(index))


def _refuse_extensions(config: ModelConfig) -> None:
    for name in config.extensions:
        raise InvalidParameter(f"the reference backend knows no extension {name!r}; leave extensions empty")
