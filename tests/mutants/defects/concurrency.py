"""Runs that don't stop, and concurrent runs that disturb each other."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from wrapping import Progress, WrappedBackend, WrappedModel

from mutants.defect import backend, model
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel
from nnrt_hdi.errors import NnrtError, OperationFailed, TimedOut
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array

LEVELS = ("concurrency",)
# Time that a device takes to start a run.
_LATENCY_S = 0.002


def _begin() -> None:
    threading.Event().wait(_LATENCY_S)


@model(levels=LEVELS)
class CancellationLost(WrappedModel):
    """A run can't be cancelled; it ends at its deadline only."""

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        return super().run(inputs, Cancellation(cancellation.deadline), outputs)


@model(levels=LEVELS)
class DeadlineIgnored(WrappedModel):
    """A run can be cancelled, but doesn't end at its deadline."""

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        endless = Cancellation()
        cancellation.on_cancel(endless.cancel)
        return super().run(inputs, endless, outputs)


@model(levels=LEVELS)
class LateRunsGiveZeros(WrappedModel):
    """A run past its deadline succeeds with zeros."""

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        try:
            return super().run(inputs, cancellation, outputs)
        except TimedOut:
            return [np.zeros(spec.shape, spec.numpy_dtype) for spec in self.sizes(inputs).outputs]


@model(levels=LEVELS)
class CancelledForEver(WrappedModel):
    """After a cancelled run the model always fails."""

    ended: NnrtError | None = None

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        if self.ended is not None:
            raise self.ended
        try:
            return super().run(inputs, cancellation, outputs)
        except (OperationFailed, TimedOut) as error:
            self.ended = error
            raise


@model(levels=LEVELS)
class WrongAfterACancelledRun(WrappedModel):
    """The run after a cancelled one returns wrong results."""

    is_dirty = False

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        was_dirty, self.is_dirty = self.is_dirty, True
        made = super().run(inputs, cancellation, outputs)
        self.is_dirty = False
        if was_dirty:
            for array in made:
                array.fill(0)
        return made


@model(levels=LEVELS)
class OneCancelStopsAll(WrappedModel):
    """Cancelling a run makes other runs fail, too."""

    def __init__(self, right: PreparedModel, graph: Graph | None) -> None:
        super().__init__(right, graph)
        self.stopped = False

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        if self.stopped:
            self.stopped = False
            raise OperationFailed("the device was reset")
        try:
            return super().run(inputs, cancellation, outputs)
        except OperationFailed:
            self.stopped = True
            raise


class _AtOnce(WrappedBackend):
    """Device that takes four runs at a time."""

    model: type[WrappedModel]

    def __init__(self, right: Any) -> None:
        super().__init__(right, self.model)
        self.concurrent_runs = 4


class _WithMemory(WrappedModel):
    """Device with one buffer for each tensor of a shape."""

    def __init__(self, right: PreparedModel, graph: Graph | None) -> None:
        super().__init__(right, graph)
        self.memory: dict[Any, Any] = {}

    def staged(self, arrays: Sequence[Array]) -> list[Array]:
        """Copy arrays to their buffers, and return the buffers."""
        places = [self.memory.setdefault((at, array.shape), np.empty_like(array)) for at, array in enumerate(arrays)]
        for place, array in zip(places, arrays, strict=True):
            place[...] = array
        return places


class _Staged(_WithMemory):
    """Device that copies the inputs to its memory, and starts a little later."""

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        staged = self.staged(inputs)
        _begin()
        return super().run(staged, cancellation, outputs)


@backend(levels=LEVELS)
class InputsOfTwoRunsMixed(_AtOnce):
    """All runs of a model share the device memory of their inputs."""

    model = _Staged


class _Together(_Staged):
    together: dict[Any, Any] = {}  # noqa: RUF012  # That is the defect.

    def __init__(self, right: PreparedModel, graph: Graph | None) -> None:
        super().__init__(right, graph)
        self.memory = self.together


@backend(levels=LEVELS)
class InputsOfTwoModelsMixed(_AtOnce):
    """All models share the device memory of their inputs."""

    model = _Together


class _OneOutput(_WithMemory):
    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        places = self.staged(super().run(inputs, cancellation))
        _begin()
        return places


@backend(levels=LEVELS)
class OutputsOfTwoRunsMixed(_AtOnce):
    """All runs of a model share the device memory of their outputs."""

    model = _OneOutput


class _Alone(WrappedModel):
    running = 0

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        if self.running:
            self.meet()
        self.running += 1
        try:
            _begin()
            return super().run(inputs, cancellation, outputs)
        finally:
            self.running -= 1

    def meet(self) -> None:
        """React to a run during another run."""
        raise RuntimeError("the queue of the device is full")


@backend(levels=LEVELS)
class FourAtATimeClaimed(_AtOnce):
    """The device claims to take four runs at a time, but a second run of a model fails."""

    model = _Alone


class _Deadlocked(_Alone):
    def meet(self) -> None:
        threading.Event().wait()


@backend(levels=LEVELS)
class TwoRunsWaitForEachOther(_AtOnce):
    """Two concurrent runs of a model never end."""

    model = _Deadlocked


@backend(levels=LEVELS)
class CompilationsMixed(WrappedBackend):
    """The compiler has one variable for the graph, which concurrent compilations overwrite."""

    graph: Graph

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        self.graph = graph
        _begin()
        return super().prepare(self.graph, config, progress)


class _Reset(WrappedModel):
    resets = 0
    seen = 0

    def __init__(self, right: PreparedModel, graph: Graph | None) -> None:
        super().__init__(right, graph)
        self.seen = _Reset.resets

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        if self.seen < _Reset.resets:
            raise RuntimeError("the context was destroyed")
        return super().run(inputs, cancellation, outputs)

    def close(self) -> None:
        _Reset.resets += 1
        super().close()


@backend(levels=("concurrency", "contract", "caches"))
class OneContextForAllModels(WrappedBackend):
    """Closing a model destroys the context of all models."""

    def __init__(self, right: Any) -> None:
        super().__init__(right, _Reset)
