"""The base of prepared models that compute a graph: what follows from the shapes of a run's inputs is inferred before.

    class AcmeModel(GraphModel[acme.Program]):
        def __init__(self, graph: Graph, config: ModelConfig) -> None:
            super().__init__(graph, config.max_tensor_bytes, acme.compile, most_kinds=8)

        def run(self, inputs, cancellation, outputs=()):
            return self.prepared(inputs, cancellation).run(inputs)

`acme.compile` gets the graph with the shapes that runs have: a library that takes only known shapes compiles it anew
for other ones. One that takes dimensions that aren't known compiles the graph when the model is prepared: its model is
an `OpenGraphModel`, which keeps what else it wants to know of a run.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Generic, TypeVar

from nnrt_hdi.backend import Cancellation, DimRange, PreparedModel
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import KnownTensors, RunKinds, decided_graph, inferred_graph, require_fits, sizes_of
from nnrt_hdi.ops.run_sizes import MOST_REMEMBERED
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import MAX_DIM, UNKNOWN_DIM, Array

PreparedT = TypeVar("PreparedT")


class OpenGraphModel(PreparedModel, Generic[PreparedT]):
    """A model of a library that takes dimensions that aren't known, with something kept for each kind of runs: for
    those whose inputs have the same shapes and, where elements of inputs are shapes themselves, the same ones."""

    def __init__(
        self,
        graph: Graph,
        max_tensor_bytes: int,
        prepare: Callable[[KnownTensors], PreparedT],
        *,
        most_kinds: int = MOST_REMEMBERED,
        input_count: int | None = None,
    ) -> None:
        """`prepare` is called at once if there is but one kind of runs, else by the first run of each kind; others of
        that kind wait for it. It gets the tensors of the graph, as well as they can be known before such a run.

        What it returns is kept for the `most_kinds` latest kinds, and dropped as soon as no run uses it. `input_count`
        says how many of the graph's inputs are those of a run, where the others stand for constants.

        Raises what is wrong with the graph, OutOfMemory for a tensor above `max_tensor_bytes`, and what `prepare` does.
        """
        self._start(
            graph, max_tensor_bytes, lambda known: Kind(known.sizes, partial(prepare, known)), most_kinds, input_count
        )

    def _start(
        self,
        graph: Graph,
        max_tensor_bytes: int,
        kind: Callable[[KnownTensors], "Kind[PreparedT]"],
        most_kinds: int,
        input_count: int | None,
    ) -> None:
        graph = inferred_graph(graph)
        count = len(graph.inputs) if input_count is None else input_count
        self.inputs = graph.input_specs[:count]
        self.outputs = graph.output_specs
        self._kinds = RunKinds(graph, count, max_tensor_bytes, kind, most_kinds)
        # Whether there is more than one kind of runs.
        self.varies = self._kinds.varies
        self.kept_bytes = self._kinds.kept_bytes
        if not self.varies:
            self.prepared(())

    def prepared(self, inputs: Sequence[Array], cancellation: Cancellation | None = None) -> PreparedT:
        """What has been prepared for a run with these inputs. Raises as `sizes`, and what preparing it does.

        With the run's `cancellation` preparing it counts as a compilation, and raises what `check` does at its end.
        """
        kind = self._kinds.always or self._kinds.of(inputs)
        if kind.is_ready:
            return kind.made
        with cancellation.compiling() if cancellation is not None else nullcontext():
            return kind.prepared()

    def sizes(self, inputs: Sequence[Array]) -> Sizes:
        """The sizes of a run. Raises OutOfMemory for inputs from which too large a tensor follows, and what is wrong
        with the nodes where they have these shapes."""
        return (self._kinds.always or self._kinds.of(inputs)).sizes

    def input_ranges(self) -> list[DimRange]:
        """Any length where it isn't known."""
        return [
            DimRange(
                tuple(0 if dim == UNKNOWN_DIM else dim for dim in spec.shape),
                tuple(MAX_DIM if dim == UNKNOWN_DIM else dim for dim in spec.shape),
            )
            for spec in self.inputs
        ]


class GraphModel(OpenGraphModel[PreparedT]):
    """A model of a library that takes only dimensions that are known, with something compiled for each kind of runs."""

    def __init__(
        self,
        graph: Graph,
        max_tensor_bytes: int,
        prepare: Callable[[Graph], PreparedT],
        *,
        most_kinds: int = MOST_REMEMBERED,
        input_count: int | None = None,
    ) -> None:
        """See OpenGraphModel, but `prepare` gets the graph as the inputs of the kind decide it
        (`nnrt_hdi.ops.decided_graph`): all shapes are known, but of the nodes that `nnrt_hdi.ops.late_nodes` names and
        those behind them."""

        def kind(tensors: KnownTensors) -> Kind[PreparedT]:
            known = decided_graph(tensors.graph)
            require_fits(known, known.tensors, max_tensor_bytes)
            return Kind(sizes_of(known, known.tensors), partial(prepare, known))

        self._start(graph, max_tensor_bytes, kind, most_kinds, input_count)


class Kind(Generic[PreparedT]):
    """Runs of one kind. `made` is what has been prepared for them, once it `is_ready`."""

    __slots__ = ("_lock", "_prepare", "is_ready", "made", "sizes")
    made: PreparedT

    def __init__(self, sizes: Sizes, prepare: Callable[[], PreparedT]) -> None:
        self.sizes = sizes
        self.is_ready = False
        self._prepare: Callable[[], PreparedT] | None = prepare
        self._lock = threading.Lock()

    def prepared(self) -> PreparedT:
        """Prepare it, unless another run has done so meanwhile."""
        with self._lock:
            if self._prepare is not None:
                self.made = self._prepare()
                self.is_ready, self._prepare = True, None
        return self.made
