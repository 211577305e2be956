"""Reference backend whose runs occupy the device for a given time, like on an accelerator.

It stands for accelerators that need no CPU core of this machine: any number of them can compute at a time.
"""

import heapq
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count

from nnrt_backend_reference import create as create_reference
from wrapping import WrappedBackend, WrappedModel, outcome_of

from nnrt_hdi.backend import Backend, Cancellation, PreparedModel, RunEnd, StartableModel
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array


class _Model(WrappedModel):
    def __init__(self, right: PreparedModel, seconds: float) -> None:
        super().__init__(right)
        self._seconds = seconds

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        ends_at = time.monotonic() + self._seconds
        result = self.right.run(inputs, cancellation, outputs)
        is_cancelled = threading.Event()
        cancellation.on_cancel(is_cancelled.set)
        is_cancelled.wait(max(ends_at - time.monotonic(), 0.0))
        cancellation.check()
        return result


class _Clock:
    """Thread that calls functions at given times."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._numbers = count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        threading.Thread(target=self._call, daemon=True).start()

    def call_at(self, moment: float, work: Callable[[], None]) -> None:
        with self._changed:
            heapq.heappush(self._due, (moment, next(self._numbers), work))
            self._changed.notify()

    def _call(self) -> None:
        while True:
            with self._changed:
                while not self._due or (left_s := self._due[0][0] - time.monotonic()) > 0:
                    self._changed.wait(left_s if self._due else None)
                *_, work = heapq.heappop(self._due)
            work()


class _Started(StartableModel, WrappedModel):
    """Model with asynchronous runs, which need no thread each; they can't be cancelled."""

    def __init__(self, right: PreparedModel, seconds: float, clock: _Clock) -> None:
        super().__init__(right)
        self._seconds = seconds
        self._clock = clock

    def start(
        self,
        inputs: Sequence[Array],
        cancellation: Cancellation,
        outputs: Sequence[Array | None],
        on_end: Callable[[RunEnd], None],
    ) -> None:
        run = partial(self.right.run, inputs, cancellation, outputs)
        self._clock.call_at(time.monotonic() + self._seconds, lambda: on_end(outcome_of(run)))


class _Timed(WrappedBackend):
    def __init__(self, seconds: float, clock: _Clock | None) -> None:
        super().__init__(create_reference({"name": "timed"}))
        self._seconds = seconds
        self._clock = clock

    def wrapped(self, prepared: PreparedModel, graph: Graph | None) -> PreparedModel:
        return _Started(prepared, self._seconds, self._clock) if self._clock else _Model(prepared, self._seconds)


def create(options: Mapping[str, str]) -> Backend:
    """Create the backend.

    The option `ms` is a run's time on the device in milliseconds; `started` makes runs asynchronous.
    """
    return _Timed(float(options["ms"]) / 1000, _Clock() if "started" in options else None)
