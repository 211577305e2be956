"""Asynchronous runs whose end is reported too early, for another run, or never."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from wrapping import WrappedBackend, WrappedModel, outcome_of

from mutants.defect import backend
from nnrt_hdi.backend import Cancellation, PreparedModel, RunEnd, StartableModel
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array

LEVELS = ("concurrency", "contract")
_AT_ONCE = 4

OnEnd = Callable[[RunEnd], None]
Outputs = Sequence[Array | None]


class _Later(StartableModel, WrappedModel):
    """Model with a queue of runs, four of which run at a time."""

    def __init__(self, right: PreparedModel, graph: Graph | None) -> None:
        super().__init__(right, graph)
        self.queue = ThreadPoolExecutor(_AT_ONCE)

    def start(self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Outputs, on_end: OnEnd) -> None:
        self.queue.submit(self.work, inputs, cancellation, outputs, on_end)

    def work(self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Outputs, on_end: OnEnd) -> None:
        """Run the model, and report the end. Called in a thread of the queue."""
        on_end(self.end_of(inputs, cancellation, outputs))

    def end_of(self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Outputs) -> RunEnd:
        """Return the outcome of the right model."""
        return outcome_of(partial(self.right.run, inputs, cancellation, outputs))

    def close(self) -> None:
        self.queue.shutdown()
        super().close()


class _Queueing(WrappedBackend):
    model: type[_Later]

    def __init__(self, right: Any) -> None:
        super().__init__(right, self.model)
        self.concurrent_runs = _AT_ONCE


class _SilentAboutErrors(_Later):
    def work(self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Outputs, on_end: OnEnd) -> None:
        end = self.end_of(inputs, cancellation, outputs)
        if not isinstance(end, BaseException):
            on_end(end)


@backend(levels=LEVELS)
class ErrorsNeverTold(_Queueing):
    """The end of a failed run is never reported."""

    model = _SilentAboutErrors


class _LatestFirst(_Later):
    def __init__(self, right: PreparedModel, graph: Graph | None) -> None:
        super().__init__(right, graph)
        self.under_way: list[OnEnd] = []

    def work(self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Outputs, on_end: OnEnd) -> None:
        self.under_way.append(on_end)
        end = self.end_of(inputs, cancellation, outputs)
        self.under_way.pop()(end)


@backend(levels=LEVELS)
class EndsToldToAnother(_Queueing):
    """The result of the first run to end is reported for the latest run."""

    model = _LatestFirst


class _Hasty(_Later):
    def work(self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Outputs, on_end: OnEnd) -> None:
        made = [np.zeros(spec.shape, spec.numpy_dtype) for spec in self.sizes(inputs).outputs]
        on_end(made)
        self.end_of(inputs, cancellation, outputs)


@backend(levels=LEVELS)
class EndsToldTooEarly(_Queueing):
    """The end of a run is reported before its results are written."""

    model = _Hasty


class _ResultsAnyway(_Later):
    latest: RunEnd = ()

    def end_of(self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Outputs) -> RunEnd:
        end = super().end_of(inputs, cancellation, outputs)
        if isinstance(end, BaseException):
            return self.latest or end
        self.latest = [np.array(array) for array in end]
        return end


@backend(levels=LEVELS)
class ErrorsTakenForResults(_Queueing):
    """A failed run returns the results of the previous run."""

    model = _ResultsAnyway


class _Unstoppable(_Later):
    def end_of(self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Outputs) -> RunEnd:
        return super().end_of(inputs, Cancellation(), outputs)


@backend(levels=LEVELS)
class StartedRunsUnstoppable(_Queueing):
    """A queued run can't be cancelled."""

    model = _Unstoppable


class _TellerThatEnds(_Later):
    has_ended = False

    def work(self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Outputs, on_end: OnEnd) -> None:
        end = self.end_of(inputs, cancellation, outputs)
        if self.has_ended:
            return
        self.has_ended = isinstance(end, BaseException)
        on_end(end)


@backend(levels=LEVELS)
class TellerEndsWithAnError(_Queueing):
    """After a failed run no end is reported any more."""

    model = _TellerThatEnds


class _OneQueue(_Later):
    one: ThreadPoolExecutor | None = None

    def __init__(self, right: PreparedModel, graph: Graph | None) -> None:
        super().__init__(right, graph)
        _OneQueue.one = self.queue = _OneQueue.one or self.queue


@backend(levels=LEVELS)
class OneQueueForAllModels(_Queueing):
    """Closing a model closes the queue of all models."""

    model = _OneQueue
