"""Backend of the accelerator, and models that it has compiled."""

from collections.abc import Callable, Mapping, Sequence

from nnrt_backend_acme.kernels import KERNELS, reason_against
from nnrt_hdi.backend import Backend, Cancellation, Capabilities, DeviceInfo, ModelConfig, PreparedModel, Support
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array

VERSION = "0.1.0"


def create(options: Mapping[str, str]) -> Backend:
    """Make the backend from the daemon's `--option NAME=VALUE`. The entry point names this function.

    Raise BackendSkipped here if the accelerator or its library is missing.
    """
    for option in options:
        raise InvalidParameter(f"the backend acme has no option {option!r}")
    return AcmeBackend()


class AcmeBackend(Backend):
    """Backend that serves one accelerator."""

    def describe(self) -> DeviceInfo:
        # No capabilities yet: no dynamic shapes, no half precision, no export of compiled models.
        return DeviceInfo("acme", "acme", DeviceType.CPU, Capabilities(), "acme", VERSION)

    def supported(self, graph: Graph) -> list[Support]:
        return [Support(reason_against(graph, node)) for node in graph.nodes]

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        for extension in config.extensions:
            raise InvalidParameter(f"the backend acme knows no extension {extension!r}; leave extensions empty")
        return AcmeModel(graph)


class AcmeModel(PreparedModel):
    """Graph that is computed node by node. Runs share no state, so several may run concurrently."""

    def __init__(self, graph: Graph) -> None:
        self.inputs, self.outputs = graph.input_specs, graph.output_specs
        self._graph = graph
        self._constants = {at: constant.data for at, constant in graph.constants.items() if constant.data is not None}

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        graph = self._graph
        values = {**self._constants, **dict(zip(graph.inputs, inputs, strict=True))}
        for at, no_longer_used in zip(graph.order, graph.last_uses, strict=True):
            cancellation.check()
            node = graph.nodes[at]
            values[node.outputs[0]] = KERNELS[node.type](node, *(values[tensor] for tensor in node.inputs))
            for tensor in no_longer_used:
                del values[tensor]
        return [values[tensor] for tensor in graph.outputs]
