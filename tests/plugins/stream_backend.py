"""Simulated accelerator: a stream computes runs in order, each after a random time, in bounded memory of its own.

Each model takes `model` bytes of that memory. The device computes the identity. Runs whose first number is a multiple
of `FAILS_EVERY` end with a fault, or with a refusal if it is one of `REFUSED_EVERY`. The device checks that it ends
runs in the order in which they were started, that it never holds more than `memory` bytes, and that nobody writes to a
run's inputs while it is under way; if not, all later runs fail, and it is lost.
"""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import NamedTuple

from started.signs import FAILS_EVERY, REFUSED_EVERY
from wrapping import WrappedBackend, WrappedModel

from nnrt_hdi.backend import Backend, Cancellation, PreparedModel, RunEnd, StartableModel, load_backend
from nnrt_hdi.errors import OperationFailed, OutOfMemory
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array

# Runs in this many take a thousandth of a second longer.
_LONG_EVERY = 50


class _Run(NamedTuple):
    """Run on the stream: its number in the order of starts, and its input with a copy in memory of the device."""

    number: int
    given: Array
    copied: Array
    on_end: Callable[[RunEnd], None]


class _Stream:
    """Stream of the device, with the memory that its runs take."""

    def __init__(self, memory_bytes: int, seed: int) -> None:
        self.fault = ""
        self._memory_bytes = memory_bytes
        self._taken_bytes = self._started = 0
        self._lock = threading.Lock()
        self._random = random.Random(seed)  # noqa: S311
        self._runs: SimpleQueue[_Run | None] = SimpleQueue()
        self._never = threading.Event()
        self._thread = threading.Thread(target=self._compute, daemon=True)
        self._thread.start()

    def take(self, size_bytes: int) -> None:
        with self._lock:
            self._take(size_bytes)

    def give_back(self, size_bytes: int) -> None:
        with self._lock:
            self._taken_bytes -= size_bytes

    def _take(self, size_bytes: int) -> None:
        if self._taken_bytes + size_bytes > self._memory_bytes:
            raise OutOfMemory("the simulated device is full; try again")
        self._taken_bytes += size_bytes

    def start(self, given: Array, on_end: Callable[[RunEnd], None]) -> None:
        with self._lock:
            self._take(given.nbytes)
            self._runs.put(_Run(self._started, given, given.copy(), on_end))
            self._started += 1

    def close(self) -> None:
        self._runs.put(None)
        self._thread.join()

    def _compute(self) -> None:
        ended = 0
        while (run := self._runs.get()) is not None:
            if self._random.randrange(_LONG_EVERY) == 0:
                self._never.wait(self._random.random() / 1e3)
            if run.number != ended:
                self.fault = f"run {run.number} ends as number {ended}"
            if (run.given != run.copied).any():
                self.fault = f"the input of run {run.number} changed while it was under way"
            ended += 1
            self.give_back(run.copied.nbytes)
            first = int(run.copied.flat[0])
            if self.fault or first % FAILS_EVERY == 0:
                run.on_end(RuntimeError(self.fault or "DMA fault"))
            elif first % REFUSED_EVERY == 0:
                run.on_end(OperationFailed("the simulated device refuses this number"))
            else:
                run.on_end([run.copied])


class _Model(StartableModel, WrappedModel):
    def __init__(self, right: PreparedModel, stream: _Stream, device_bytes: int) -> None:
        super().__init__(right)
        self._stream = stream
        stream.take(device_bytes)
        self.device_bytes = device_bytes

    def close(self) -> None:
        super().close()
        self._stream.give_back(self.device_bytes or 0)

    def start(
        self,
        inputs: Sequence[Array],
        cancellation: Cancellation,
        outputs: Sequence[Array | None],
        on_end: Callable[[RunEnd], None],
    ) -> None:
        self._stream.start(inputs[0], on_end)


class _Simulated(WrappedBackend):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(load_backend("reference"))
        self.concurrent_runs = int(options["runs"])
        self._stream = _Stream(int(options["memory"]), int(options.get("seed", 0)))
        self._model_bytes = int(options.get("model", 0))

    def wrapped(self, prepared: PreparedModel, graph: Graph | None) -> PreparedModel:
        return _Model(prepared, self._stream, self._model_bytes)

    def fault(self) -> str:
        return self._stream.fault

    def close(self) -> None:
        super().close()
        self._stream.close()


def create(options: Mapping[str, str]) -> Backend:
    return _Simulated(options)
