"""A load that never lets up, on a session of any number of devices, and what became of its runs."""

import math
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client import Model, ModelSession, OperationType
from nnrt_hdi.closable import Closable

Array = NDArray[Any]
# The input of a run, and the answer that it must get, bit by bit.
Question = tuple[Array, Array]
Run = Callable[[Array], Array]

ELEMENTS = 64
WRONG = "wrong answer"
# A worker whose run has failed lets others go on.
_AFTER_FAILURE_S = 0.01


def affine_model() -> Model:
    """y = 3x + 1, exact for whole numbers below five million."""
    model = Model(name="affine")
    x = model.input((ELEMENTS,), name="x")
    y = model.apply(OperationType.MUL, x, np.full(1, 3, np.float32))
    y = model.apply(OperationType.ADD, y, np.ones(1, np.float32), name="y")
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


def affine_questions(count: int = 256) -> list[Question]:
    """Inputs that all differ, with their right answers by arithmetic in integers."""
    numbers = np.arange(count * ELEMENTS).reshape(count, ELEMENTS)
    return list(zip(numbers.astype(np.float32), (3 * numbers + 1).astype(np.float32), strict=True))


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that has ended."""

    at: float  # On the clock of time.monotonic.
    took_s: float
    failure: str = ""


class Outcome:
    """What became of the runs that ended in a span of time."""

    def __init__(self, runs: Sequence[Ended], start: float, end: float) -> None:
        self.seconds = end - start
        self._start = start
        self._good = [run for run in runs if not run.failure]
        self.failures = Counter(run.failure for run in runs if run.failure)

    @property
    def runs(self) -> int:
        """Number of right answers."""
        return len(self._good)

    @property
    def wrong(self) -> int:
        """Number of wrong answers."""
        return self.failures[WRONG]

    @property
    def failed(self) -> int:
        """Number of runs that raised an error."""
        return self.failures.total() - self.wrong

    @property
    def rate(self) -> float:
        """Right answers per second."""
        return self.runs / self.seconds

    def rates(self, window_s: float) -> list[float]:
        """Right answers per second in each whole window."""
        counts = Counter(int((run.at - self._start) / window_s) for run in self._good)
        return [counts[window] / window_s for window in range(int(self.seconds / window_s))]

    def percentile_s(self, percent: int) -> float:
        """The seconds that so many percent of the right answers took at most."""
        return statistics.quantiles([run.took_s for run in self._good], n=100)[percent - 1]


class Load(Closable):
    """So many workers that each have one run under way, from the constructor until `close`."""

    def __init__(self, run: Run, questions: Sequence[Question], workers: int) -> None:
        self._run = run
        self._questions = questions
        self._over = threading.Event()
        self._ended: list[list[Ended]] = [[] for _ in range(workers)]
        self._threads = [
            threading.Thread(target=self._work, args=(worker,), name=f"worker-{worker}") for worker in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Begin no further run, and wait for the last ones."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    @property
    def runs(self) -> int:
        """Number of runs that have ended so far, however they did."""
        return sum(map(len, self._ended))

    def outcome(self, start: float = 0.0, end: float = math.inf) -> Outcome:
        """What became of the runs that ended between two moments on the clock of time.monotonic."""
        return Outcome([run for ended in self._ended for run in list(ended) if start <= run.at < end], start, end)

    def during(self, work: Callable[[], object]) -> Outcome:
        """What becomes of the runs while this is done."""
        start = time.monotonic()
        work()
        return self.outcome(start, time.monotonic())

    def _work(self, worker: int) -> None:
        ended, questions = self._ended[worker], self._questions
        turn = worker * len(questions) // len(self._ended)
        while not self._over.is_set():
            array, right = questions[turn % len(questions)]
            turn += 1
            failure = ""
            began = time.monotonic()
            try:
                answer = self._run(array)
            except Exception as error:  # Whatever it is, the run has failed.
                failure = f"{type(error).__name__}: {error}"
            now = time.monotonic()
            if not failure and not np.array_equal(answer, right):
                failure = WRONG
            ended.append(Ended(now, now - began, failure))
            if failure:
                self._over.wait(_AFTER_FAILURE_S)


def affine_load(session: ModelSession, workers: int) -> Load:
    """A load on a session of `affine_model`."""
    return Load(lambda array: session.run([array])["y"], affine_questions(), workers)
