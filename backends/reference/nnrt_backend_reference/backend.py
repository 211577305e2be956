"""The device that the reference kernels make up."""

from collections.abc import Callable, Mapping

from nnrt_backend_reference.kernels import KERNELS
from nnrt_backend_reference.program import Program
from nnrt_hdi import __version__
from nnrt_hdi.backend import Backend, Capabilities, DeviceInfo, ModelConfig, Support
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import InvalidParameter, Unsupported
from nnrt_hdi.graph import Graph

OPTIONS = ("name",)


def create(options: Mapping[str, str]) -> "ReferenceBackend":
    """The factory of the entry point. Option `name` gives the device another name than 'reference'."""
    for option in options:
        if option not in OPTIONS:
            raise InvalidParameter(f"the reference backend has no option {option!r}; it has {', '.join(OPTIONS)}")
    return ReferenceBackend(**options)


class ReferenceBackend(Backend):
    """A CPU that computes with numpy, one operator after the other."""

    def __init__(self, name: str = "reference") -> None:
        self._info = DeviceInfo(
            device_name=name,
            vendor_name="nnrt",
            device_type=DeviceType.CPU,
            capabilities=Capabilities(dynamic_input=True),
            backend_name="reference",
            backend_version=__version__,
        )

    def describe(self) -> DeviceInfo:
        return self._info

    def supported(self, graph: Graph) -> list[Support]:
        """Every node whose type has a kernel, whatever its operands are: `nnrt_hdi.ops` has accepted them."""
        return [
            Support() if node.type in KERNELS else Support(f"the reference backend has no {node.type.name} kernel")
            for node in graph.nodes
        ]

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> Program:
        for name in config.extensions:
            raise InvalidParameter(f"the reference backend knows no extension {name!r}; leave extensions empty")
        for index, support in enumerate(self.supported(graph)):
            if not support.supported:
                raise Unsupported(support.reason, place=graph.place(index))
        program = Program(graph, config.max_tensor_bytes)
        progress(1.0)
        return program
