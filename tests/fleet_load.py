"""Continuous load on a session of one or more devices, with a record of each run's outcome."""

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
# Input of a run, and the expected answer, compared bit by bit.
Question = tuple[Array, Array]
Run = Callable[[Array], Array]

ELEMENTS = 64
WRONG = "wrong answer"
# Pause of a worker after a failed run.
_AFTER_FAILURE_S = 0.01


def affine_model() -> Model:
    """Build y = 3x + 1, which is exact for whole numbers below five million."""
    model = Model(name="affine")
    x = model.input((ELEMENTS,), name="x")
    y = model.apply(OperationType.MUL, x, np.full(1, 3, np.float32))
    y = model.apply(OperationType.ADD, y, np.ones(1, np.float32), name="y")
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


def affine_questions(count: int = 256) -> list[Question]:
    """Return inputs that all differ, with the right answers, computed with integers."""
    numbers = np.arange(count * ELEMENTS).reshape(count, ELEMENTS)
    return list(zip(numbers.astype(np.float32), (3 * numbers + 1).astype(np.float32), strict=True))


@dataclass(frozen=True, slots=True)
class Ended:
    """Record of a run that has ended."""

    at: float  # In time.monotonic's seconds.
    took_s: float
    failure: str = ""


class Outcome:
    """Outcomes of the runs that ended within a period."""

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
        """Return a percentile of the durations of runs with right answers, in seconds."""
        return statistics.quantiles([run.took_s for run in self._good], n=100)[percent - 1]


class Load(Closable):
    """Workers that run the questions one after another, from the constructor until `close`."""

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
        """Start no further run, and wait for the running ones."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    @property
    def runs(self) -> int:
        """Number of runs that have ended so far, including failures."""
        return sum(map(len, self._ended))

    def outcome(self, start: float = 0.0, end: float = math.inf) -> Outcome:
        """Return the outcomes of runs that ended between two times of time.monotonic."""
        return Outcome([run for ended in self._ended for run in list(ended) if start <= run.at < end], start, end)

    def during(self, work: Callable[[], object]) -> Outcome:
        """Call `work`, and return the outcomes of runs that ended meanwhile."""
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
            except Exception as error:  # Any exception is a failed run.
                failure = f"{type(error).__name__}: {error}"
            now = time.monotonic()
            if not failure and not np.array_equal(answer, right):
                failure = WRONG
            ended.append(Ended(now, now - began, failure))
            if failure:
                self._over.wait(_AFTER_FAILURE_S)


def affine_load(session: ModelSession, workers: int) -> Load:
    """Start a load on a session of `affine_model`."""
    return Load(lambda array: session.run([array])["y"], affine_questions(), workers)
