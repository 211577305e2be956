"""Wrappers of a backend and its models, which tests' backends override in part."""

from collections.abc import Callable, Sequence

from nnrt_hdi.backend import (
    Backend,
    Cancellation,
    DeviceInfo,
    DimRange,
    ModelConfig,
    PreparedModel,
    RunEnd,
    Support,
)
from nnrt_hdi.device_buffers import DeviceBuffer
from nnrt_hdi.graph import Graph
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.part import Part
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import Array

Progress = Callable[[float], None]


def outcome_of(compute: Callable[[], list[Array]]) -> RunEnd:
    """Call `compute`, and return the result or the exception, as the end of an asynchronous run."""
    try:
        return compute()
    except Exception as error:
        return error


class WrappedModel(PreparedModel):
    """Wrapper of a model; it delegates everything to `right`.

    `graph` is the compiled graph, or None for a restored model.
    """

    def __init__(self, right: PreparedModel, graph: Graph | None = None) -> None:
        self.right = right
        self.graph = graph
        self.inputs = right.inputs
        self.outputs = right.outputs
        self.reads_in_place = right.reads_in_place
        self.takes_device_buffers = right.takes_device_buffers
        self.kept_bytes = right.kept_bytes
        self.device_bytes = right.device_bytes

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        return self.right.run(inputs, cancellation, outputs)

    def profile(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> tuple[list[Array], list[OperatorTime]]:
        return self.right.profile(inputs, cancellation, outputs)

    def sizes(self, inputs: Sequence[Array]) -> Sizes:
        return self.right.sizes(inputs)

    def export(self) -> Sequence[Part]:
        return self.right.export()

    def input_ranges(self) -> list[DimRange]:
        return self.right.input_ranges()

    def close(self) -> None:
        self.right.close()


class WrappedBackend(Backend):
    """Wrapper of a backend; it delegates everything to `right`, and wraps its models in `model` if given."""

    def __init__(self, right: Backend, model: type[WrappedModel] | None = None) -> None:
        self.right = right
        self.concurrent_runs = right.concurrent_runs
        self.has_opaque_exports = right.has_opaque_exports
        self._model = model

    def describe(self) -> DeviceInfo:
        return self.right.describe()

    def start(self, run_bytes: int, *, accepts_programs: bool) -> None:
        self.right.start(run_bytes, accepts_programs=accepts_programs)

    def supported(self, graph: Graph) -> list[Support]:
        return self.right.supported(graph)

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        return self.wrapped(self.right.prepare(graph, config, progress), graph)

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        return self.wrapped(self.right.restore(parts, config), None)

    def allocate(self, size_bytes: int) -> DeviceBuffer | None:
        return self.right.allocate(size_bytes)

    def close(self) -> None:
        self.right.close()

    def wrapped(self, prepared: PreparedModel, graph: Graph | None) -> PreparedModel:
        """Return the model as clients of the backend get it."""
        return self._model(prepared, graph) if self._model else prepared
