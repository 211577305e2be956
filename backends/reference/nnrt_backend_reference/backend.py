"""Backend of the device that computes with the reference kernels."""

from collections.abc import Mapping

from nnrt_backend_reference.kernels import KERNELS
from nnrt_backend_reference.program import KIND, Program
from nnrt_hdi import __version__
from nnrt_hdi.backend import Capabilities, DeviceInfo, ModelConfig, Support
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import Graph
from nnrt_hdi.graph_backend import GraphBackend

OPTIONS = ("name",)


def create(options: Mapping[str, str]) -> "ReferenceBackend":
    """Return the backend; the entry point's factory. Option `name` names the device, by default 'reference'."""
    for option in options:
        if option not in OPTIONS:
            raise InvalidParameter(f"the reference backend has no option {option!r}; it has {', '.join(OPTIONS)}")
    return ReferenceBackend(**options)


class ReferenceBackend(GraphBackend[Program]):
    """Backend of a CPU that computes with numpy, one operator after the other.

    It has no performance modes, because it has only one way to compute.
    """

    exports = KIND
    isolates = "none"

    def __init__(self, name: str = "reference") -> None:
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

    def supported(self, graph: Graph) -> list[Support]:
        """Return the support of each node: whether its type has a kernel. `nnrt_hdi.ops` has checked its operands."""
        return [
            Support() if node.type in KERNELS else Support(f"the reference backend has no {node.type.name} kernel")
            for node in graph.nodes
        ]

    def model(self, graph: Graph, config: ModelConfig, enable_float16: bool) -> Program:
        return Program(graph, config.max_tensor_bytes, self.run_bytes, enable_float16)
