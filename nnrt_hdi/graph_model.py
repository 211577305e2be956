"""Bases of prepared models that compute a graph: they infer shapes before the run.

    class AcmeModel(GraphModel[acme.Program]):
        def __init__(self, graph: Graph, config: ModelConfig) -> None:
            super().__init__(graph, config.max_tensor_bytes, acme.compile, most_kinds=8)

        def run(self, inputs, cancellation, outputs=()):
            return self.prepared(inputs, cancellation).run(inputs)

`acme.compile` gets the graph with the shapes of the run: a library that needs known shapes compiles it again for other
ones. A library that takes open dimensions compiles the graph once, when the model is prepared; its model is an
`OpenGraphModel`, which keeps whatever else it wants for each kind of run.
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
    """Model of a library that takes open dimensions. It keeps what the library prepares for each kind of run.

    Runs are of one kind if their inputs have the same shapes, and the same elements where these are shapes.
    """

    def __init__(
        self,
        graph: Graph,
        max_tensor_bytes: int,
        prepare: Callable[[KnownTensors], PreparedT],
        *,
        most_kinds: int = MOST_REMEMBERED,
        input_count: int | None = None,
    ) -> None:
        """Create the model.

        Args:
            graph: The graph.
            max_tensor_bytes: Limit of a tensor.
            prepare: Returns what is kept for a kind, given the tensors as known before a run. If there is only one
                kind, the constructor calls it, else the first run of each kind; other runs of that kind wait.
            most_kinds: The number of kinds to keep, the latest ones. Others are dropped when no run uses them.
            input_count: The number of the graph's inputs that each run gets; the others stand for constants.

        Raises:
            OutOfMemory: A tensor is above `max_tensor_bytes`.
            NnrtError: The graph is wrong, or `prepare` raised it.
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
        # Whether there is more than one kind of run.
        self.varies = self._kinds.varies
        self.kept_bytes = self._kinds.kept_bytes
        if not self.varies:
            self.prepared(())

    def prepared(self, inputs: Sequence[Array], cancellation: Cancellation | None = None) -> PreparedT:
        """Return what `prepare` returned for this kind of run, after calling it if no earlier run did.

        Args:
            inputs: Inputs of a run.
            cancellation: The run's cancellation, with which preparing counts as a compilation.

        Returns:
            What is kept for the kind.

        Raises:
            NnrtError: What `sizes`, `prepare` or `cancellation.check` raises.
        """
        kind = self._kinds.always or self._kinds.value_for(inputs)
        if kind.is_ready:
            return kind.made
        with cancellation.compiling() if cancellation is not None else nullcontext():
            return kind.prepared()

    def sizes(self, inputs: Sequence[Array]) -> Sizes:
        """Return the sizes of a run.

        Args:
            inputs: Inputs of a run.

        Returns:
            The sizes of outputs and memory.

        Raises:
            OutOfMemory: A tensor would be too large.
            NnrtError: A node is wrong with these shapes.
        """
        return (self._kinds.always or self._kinds.value_for(inputs)).sizes

    def input_ranges(self) -> list[DimRange]:
        """Return the declared shapes; an open dimension takes any length."""
        return [
            DimRange(
                tuple(0 if dim == UNKNOWN_DIM else dim for dim in spec.shape),
                tuple(MAX_DIM if dim == UNKNOWN_DIM else dim for dim in spec.shape),
            )
            for spec in self.inputs
        ]

    def close(self) -> None:
        """Drop what is kept for kinds of runs. Overrides call this, too."""
        self._kinds.forget()


class GraphModel(OpenGraphModel[PreparedT]):
    """Model of a library that needs known shapes, compiled for each kind of run."""

    def __init__(
        self,
        graph: Graph,
        max_tensor_bytes: int,
        prepare: Callable[[Graph], PreparedT],
        *,
        most_kinds: int = MOST_REMEMBERED,
        input_count: int | None = None,
    ) -> None:
        """Create the model as OpenGraphModel does, but `prepare` gets the graph with the shapes of the kind.

        All shapes are known then (`nnrt_hdi.ops.decided_graph`), except those of `nnrt_hdi.ops.late_nodes` and of nodes
        after them.
        """

        def kind(tensors: KnownTensors) -> Kind[PreparedT]:
            known = decided_graph(tensors.graph)
            require_fits(known, known.tensors, max_tensor_bytes)
            return Kind(sizes_of(known, known.tensors), partial(prepare, known))

        self._start(graph, max_tensor_bytes, kind, most_kinds, input_count)


class Kind(Generic[PreparedT]):
    """Kind of run. `made` is what `prepare` returned, once `is_ready`."""

    __slots__ = ("_lock", "_prepare", "is_ready", "made", "sizes")
    made: PreparedT

    def __init__(self, sizes: Sizes, prepare: Callable[[], PreparedT]) -> None:
        self.sizes = sizes
        self.is_ready = False
        self._prepare: Callable[[], PreparedT] | None = prepare
        self._lock = threading.Lock()

    def prepared(self) -> PreparedT:
        """Call `prepare` unless another run has done so, and return its result."""
        with self._lock:
            if self._prepare is not None:
                self.made = self._prepare()
                self.is_ready, self._prepare = True, None
        return self.made
