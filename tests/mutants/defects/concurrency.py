"""Runs that don't stop, and runs that don't know of each other."""

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
# As long as a device takes to begin.
_LATENCY_S = 0.002


def _begin() -> None:
    threading.Event().wait(_LATENCY_S)


@model(levels=LEVELS)
class CancellationLost(WrappedModel):
    """A run looks at no cancellation, only at the clock."""

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        return super().run(inputs, Cancellation(cancellation.deadline), outputs)


@model(levels=LEVELS)
class DeadlineIgnored(WrappedModel):
    """A run can be cancelled, but never looks at the clock."""

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        endless = Cancellation()
        cancellation.on_cancel(endless.cancel)
        return super().run(inputs, endless, outputs)


@model(levels=LEVELS)
class LateRunsGiveZeros(WrappedModel):
    """A run whose time is over ends well, with what there is."""

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        try:
            return super().run(inputs, cancellation, outputs)
        except TimedOut:
            return [np.zeros(spec.shape, spec.numpy_dtype) for spec in self.sizes(inputs).outputs]


@model(levels=LEVELS)
class CancelledForEver(WrappedModel):
    """A model that was cancelled once stays so."""

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
    """After a run that was stopped the next one gives what was left of it."""

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
    """Whoever cancels a run stops the device, and all that runs there."""

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
    """A device that takes four runs at a time."""

    model: type[WrappedModel]

    def __init__(self, right: Any) -> None:
        super().__init__(right, self.model)
        self.concurrent_runs = 4


class _WithMemory(WrappedModel):
    """A device with a place for each tensor of a shape."""

    def __init__(self, right: PreparedModel, graph: Graph | None) -> None:
        super().__init__(right, graph)
        self.memory: dict[Any, Any] = {}

    def staged(self, arrays: Sequence[Array]) -> list[Array]:
        """Copy arrays to their places."""
        places = [self.memory.setdefault((at, array.shape), np.empty_like(array)) for at, array in enumerate(arrays)]
        for place, array in zip(places, arrays, strict=True):
            place[...] = array
        return places


class _Staged(_WithMemory):
    """Inputs are copied to memory of the device, which begins a little later."""

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        staged = self.staged(inputs)
        _begin()
        return super().run(staged, cancellation, outputs)


@backend(levels=LEVELS)
class InputsOfTwoRunsMixed(_AtOnce):
    """All runs of a model have their inputs in the same memory of the device."""

    model = _Staged


class _Together(_Staged):
    together: dict[Any, Any] = {}  # noqa: RUF012  # That is the defect.

    def __init__(self, right: PreparedModel, graph: Graph | None) -> None:
        super().__init__(right, graph)
        self.memory = self.together


@backend(levels=LEVELS)
class InputsOfTwoModelsMixed(_AtOnce):
    """All models have their inputs in the same memory of the device."""

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
    """All runs of a model have their outputs in the same memory of the device."""

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
        """Begin a run beside another one."""
        raise RuntimeError("the queue of the device is full")


@backend(levels=LEVELS)
class FourAtATimeClaimed(_AtOnce):
    """Four runs are taken at a time, and the second of a model fails."""

    model = _Alone


class _Deadlocked(_Alone):
    def meet(self) -> None:
        threading.Event().wait()


@backend(levels=LEVELS)
class TwoRunsWaitForEachOther(_AtOnce):
    """Two runs at once never end."""

    model = _Deadlocked


@backend(levels=LEVELS)
class CompilationsMixed(WrappedBackend):
    """The compiler keeps the graph in one place, also when two compile."""

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
    """Closing a model ends the context that all others are in."""

    def __init__(self, right: Any) -> None:
        super().__init__(right, _Reset)
