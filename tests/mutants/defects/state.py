"""Models that keep something of a run, and use it in the next."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel
from wrapping import Progress, WrappedBackend, WrappedModel

from mutants.defect import backend, kernel, model
from mutants.defects.arrays import fitted, writable
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel
from nnrt_hdi.enums import ActivationType, NodeType
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array, Shape

ValueT = TypeVar("ValueT")
LEVELS = ("contract", "graphs", "operators")
# Values that nodes keep, by the id of the nodes' attributes, which are kept alive with them.
_MEMORY: dict[tuple[int, str], tuple[object, Any]] = {}


def kept(call: Call, name: str, value: ValueT) -> ValueT:
    """Return what the node has kept under this name, or keep this value the first time."""
    known: ValueT = _MEMORY.setdefault((id(call.attrs), name), (call.attrs, value))[1]
    return known


def keep(call: Call, name: str, value: object) -> None:
    """Replace what the node keeps under this name."""
    _MEMORY[id(call.attrs), name] = call.attrs, value


@kernel(NodeType.FULL_CONNECTION, NodeType.CONV2D_FUSION)
def weights_of_the_first_run(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, *bias: AnyArray) -> Any:
    """Variable weights are packed in the first run, and reused in later runs."""
    known = kept(call, "weight", np.array(weight))
    return right(call, x, known if known.shape == weight.shape else weight, *bias)


@kernel(NodeType.SHAPE)
def shape_of_the_first_run(right: Kernel, call: Call, x: AnyArray) -> Any:
    """SHAPE always returns the first run's result."""
    return kept(call, "shape", np.array(right(call, x)))


@kernel(NodeType.LSTM)
def state_of_the_run_before(
    right: Kernel, call: Call, x: AnyArray, w_ih: AnyArray, w_hh: AnyArray, bias: AnyArray, hx: AnyArray, cx: AnyArray
) -> Any:
    """An LSTM continues from the previous run's states."""
    h, c = kept(call, "states", (hx, cx))
    states = (h.reshape(hx.shape), c.reshape(cx.shape)) if h.size == hx.size else (hx, cx)
    y, h, c = right(call, x, w_ih, w_hh, bias, *states)
    keep(call, "states", (h, c))
    return y, h, c


@kernel(NodeType.SCATTER_ND)
def updates_of_all_runs(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """SCATTER_ND adds its updates to the previous run's result."""
    y = right(call, *operands)
    before = kept(call, "sum", np.zeros_like(y))
    total = y + before if y.shape == before.shape else y
    keep(call, "sum", total)
    return total


@kernel(NodeType.ACTIVATION)
def relu_in_place(right: Kernel, call: Call, x: AnyArray) -> Any:
    """A RELU overwrites its input."""
    y = right(call, x)
    if call.attrs.activation_type is ActivationType.RELU and x.flags.c_contiguous and x.dtype == y.dtype:
        writable(x)[...] = y
    return y


@kernel(NodeType.ADD_FUSION)
def sum_in_place(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """A sum overwrites its first operand."""
    y = right(call, a, b)
    if a.shape == y.shape and a.dtype == y.dtype and a.flags.c_contiguous and a.ndim:
        writable(a)[...] = y
    return y


@kernel(NodeType.FUSED_BATCH_NORM)
def statistics_prepared_in_place(right: Kernel, call: Call, x: AnyArray, *vectors: AnyArray) -> Any:
    """A batch normalization replaces the variance by the deviation in its constants, in every run."""
    y = right(call, x, *vectors)
    if vectors[3].flags.c_contiguous:
        writable(vectors[3])[...] = np.sqrt(vectors[3])
    return y


class _Run(WrappedModel):
    """Model whose runs call `compute`."""

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        return self.compute(inputs, cancellation)

    def compute(self, inputs: Sequence[Array], cancellation: Cancellation) -> list[Any]:
        return self.right.run(inputs, cancellation)


@model(levels=LEVELS)
class ShapesOfTheFirstRun(_Run):
    """Outputs always have the shapes of the first run."""

    shapes: Sequence[Shape] = ()

    def compute(self, inputs: Sequence[Array], cancellation: Cancellation) -> list[Any]:
        made = super().compute(inputs, cancellation)
        self.shapes = self.shapes or [array.shape for array in made]
        return [fitted(array, shape) for array, shape in zip(made, self.shapes, strict=True)]


@model(levels=LEVELS)
class RoomForTheFirstRun(_Run):
    """Rows beyond the number of the first run are not computed."""

    shapes: Sequence[Shape] = ()

    def compute(self, inputs: Sequence[Array], cancellation: Cancellation) -> list[Any]:
        made = super().compute(inputs, cancellation)
        self.shapes = self.shapes or [array.shape for array in made]
        for array, shape in zip(made, self.shapes, strict=True):
            array[tuple(map(slice, shape[:1], (None,)))] = 0
        return made


@model(levels=LEVELS)
class KindsKnownByTheirSize(_Run):
    """Inputs are given the shapes of earlier inputs with as many elements."""

    def __init__(self, right: PreparedModel, graph: Graph | None) -> None:
        super().__init__(right, graph)
        self._shapes: dict[tuple[int, ...], list[Shape]] = {}

    def compute(self, inputs: Sequence[Array], cancellation: Cancellation) -> list[Any]:
        shapes = self._shapes.setdefault(tuple(array.size for array in inputs), [array.shape for array in inputs])
        turned = [array.reshape(shape) for array, shape in zip(inputs, shapes, strict=True)]
        return super().compute(turned, cancellation)


@model(levels=LEVELS)
class SizesOfTheFirstRun(_Run):
    """Integer inputs are read in the first run only."""

    said: Sequence[Any] = ()

    def compute(self, inputs: Sequence[Array], cancellation: Cancellation) -> list[Any]:
        self.said = self.said or [np.array(array) if array.dtype.kind == "i" else None for array in inputs]
        pairs = zip(inputs, self.said, strict=True)
        used = [array if said is None or said.shape != array.shape else said for array, said in pairs]
        return super().compute(used, cancellation)


@model(levels=("contract",))
class WorkspaceOfSixteenRows(_Run):
    """Dynamic models compute the first 16 rows only."""

    def compute(self, inputs: Sequence[Array], cancellation: Cancellation) -> list[Any]:
        made = super().compute(inputs, cancellation)
        if any(spec.is_dynamic for spec in self.inputs):
            for array in made:
                if array.ndim:
                    array[16:] = 0
        return made


@model(levels=("operators", "death", "values"))
class NothingIsAnError(_Run):
    """A run with an empty input fails."""

    def compute(self, inputs: Sequence[Array], cancellation: Cancellation) -> list[Any]:
        if any(array.size == 0 for array in inputs):
            raise RuntimeError("an allocation of 0 bytes")
        return super().compute(inputs, cancellation)


@model(levels=("graphs", "contract", "concurrency"))
class ResultsOfTheRunBefore(_Run):
    """A run returns the previous run's results."""

    before: list[Any] | None = None

    def compute(self, inputs: Sequence[Array], cancellation: Cancellation) -> list[Any]:
        made = super().compute(inputs, cancellation)
        before, self.before = self.before, made
        fits = before is not None and [array.shape for array in before] == [array.shape for array in made]
        return [array.copy() for array in (before if fits and before is not None else made)]


@model(levels=("concurrency",))
class OneRegionOnly(WrappedModel):
    """Only the first output is written to the memory that the run was given."""

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        made = super().run(inputs, cancellation)
        for at, region in enumerate(outputs):
            if region is not None:
                if at == 0:
                    np.copyto(region, made[at])
                made[at] = region
        return made


@backend(levels=("operators", "graphs"))
class ModelsKnownByTheirNodes(WrappedBackend):
    """A model is taken for an earlier one with the same nodes and tensors, whatever its attributes and constants."""

    def __init__(self, right: Any) -> None:
        super().__init__(right)
        self._known: dict[object, PreparedModel] = {}

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        key = graph.tensors, tuple((node.type, node.inputs) for node in graph.nodes), graph.outputs
        if key not in self._known:
            self._known[key] = super().prepare(graph, config, progress)
        return self._known[key]


@backend(levels=("contract",))
class ConfigOfTheFirst(WrappedBackend):
    """A model that is prepared again gets the settings of the first time."""

    def __init__(self, right: Any) -> None:
        super().__init__(right)
        self._known: dict[object, bool] = {}

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        constants = tuple((at, constant.sha256) for at, constant in graph.constants.items())
        nodes = tuple((node.type, node.inputs, repr(sorted(node.attrs.items()))) for node in graph.nodes)
        first = self._known.setdefault((graph.tensors, nodes, constants), config.enable_float16)
        return super().prepare(graph, replace(config, enable_float16=first), progress)


class _Weights(WrappedModel):
    freed: set[bytes]

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        made = super().run(inputs, cancellation, outputs)
        constants = self.graph.constants.values() if self.graph else ()
        if any(constant.sha256 in self.freed for constant in constants):
            for array in made:
                array.fill(0)
        return made

    def close(self) -> None:
        self.freed.update(constant.sha256 for constant in (self.graph.constants.values() if self.graph else ()))
        super().close()


@backend(levels=("contract", "concurrency", "caches", "graphs"))
class WeightsFreedWithTheFirst(WrappedBackend):
    """Models share equal weights, which are freed when the first of them is closed."""

    def __init__(self, right: Any) -> None:
        super().__init__(right)
        self._freed: set[bytes] = set()
        self._living: list[_Weights] = []

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        made = _Weights(super().prepare(graph, config, progress), graph)
        made.freed = set()
        for other in self._living:
            other_digests = {constant.sha256 for constant in other.graph.constants.values()} if other.graph else set()
            if other_digests & {constant.sha256 for constant in graph.constants.values()}:
                made.freed = other.freed
        self._living.append(made)
        return made
