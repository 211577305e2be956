"""Cameras that send pictures at a fixed rate, whatever happens to the devices."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from nnrt_client import NnrtError

Pictures = NDArray[np.float32]
# A picture and the expected answer, compared bit by bit.
Question = tuple[Pictures, NDArray[Any]]


class Traffic:
    """Cameras that send pictures from entering the context manager until leaving it."""

    def __init__(
        self,
        classify: Callable[[Pictures], NDArray[Any]],
        questions: Sequence[Question],
        cameras: int,
        per_second: float,
    ) -> None:
        self._classify = classify
        self._questions = questions
        self._interval_s = 1 / per_second
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(index,)) for index in range(cameras)]
        self._lock = threading.Lock()
        self.answered = 0
        self.failed = 0
        self.wrong = 0
        # Durations of the latest runs, in seconds.
        self.latest_s: deque[float] = deque(maxlen=1000)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _send(self, camera: int) -> None:
        due, turn = time.monotonic(), camera
        while not self._is_over.wait(max(due - time.monotonic(), 0)):
            due += self._interval_s
            turn += 1
            self._ask(*self._questions[turn % len(self._questions)])

    def _ask(self, picture: Pictures, right: NDArray[Any]) -> None:
        began = time.monotonic()
        try:
            answer = self._classify(picture)
        except NnrtError:
            with self._lock:
                self.failed += 1
            return
        with self._lock:
            self.latest_s.append(time.monotonic() - began)
            self.answered += 1
            self.wrong += not np.array_equal(answer, right)
