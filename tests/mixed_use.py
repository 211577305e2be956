"""Load of many threads that use one device in all ways at once, and check every run.

A test takes a few seconds of it; `benchmarks/soak.py` goes on for minutes and watches the memory.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import numpy as np
from networks import convolution_model
from numpy.typing import NDArray

from nnrt_client import Compilation, DataType, Device, Executor, NnrtError, Runtime, Tensor, TensorDesc, TimedOut

THREADS = 8
BATCHES = 4
# Time limit of every call, also on a busy machine.
HANG_S = 60.0


class MixedUse:
    """Threads with one model and one shared executor, which also create and close executors and compilations."""

    def __init__(self, runtime: Runtime, cache: Path, seed: int = 0) -> None:
        self._device: Device = runtime.device()
        self._runtime = runtime
        self._cache = cache
        self._seed = seed
        self._model = convolution_model()
        rng = np.random.default_rng(seed)
        self._images = [rng.standard_normal((batch, 8, 8, 1), np.float32) for batch in range(1, BATCHES + 1)]
        self._compilation = Compilation(self._model, self._device)
        self._compilation.build()
        self._shared = Executor(self._compilation)
        self._shared.set_on_run_done(self._on_run_done)
        self._expected = [self._shared.run_sync([image])[0] for image in self._images]
        self._lock = threading.Lock()
        self._called_back = threading.Condition(self._lock)
        self._pending: dict[int, int] = {}
        self._next_run = 0
        self._stop = threading.Event()
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []

    def run(self, seconds: float, watch: Callable[[float], None] | None = None) -> None:
        """Keep all threads busy for `seconds`; call `watch` now and then with the elapsed fraction."""
        threads = [
            threading.Thread(target=self._work, args=(number,), name=f"user {number}", daemon=True)
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds and not self._stop.wait(min(0.5, seconds - passed)):
            if watch:
                watch((time.monotonic() - began) / seconds)
        self._stop.set()
        deadline = time.monotonic() + HANG_S
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        self.wrong += [f"{thread.name} hangs" for thread in threads if thread.is_alive()]
        with self._called_back:
            self._called_back.wait_for(lambda: not self._pending, HANG_S)
            self.wrong += [f"run {run} was never called back" for run in self._pending]

    def close(self) -> None:
        self._shared.close()
        self._compilation.close()

    # ---- what the threads do

    def _work(self, number: int) -> None:
        rng = np.random.default_rng((self._seed, number))
        ways: list[Callable[[np.random.Generator], None]] = [
            self._run_arrays,
            self._run_tensors,
            self._run_many,
            self._run_async,
            self._run_short_of_time,
            self._cancel,
            self._ask,
            self._build,
            self._build_from_cache,
        ]
        chances = np.array([20, 20, 10, 20, 5, 5, 10, 5, 5], float)
        first = ways[number::THREADS]  # Each way is used at least once, even in a short time.
        while first or not self._stop.is_set():
            way = first.pop() if first else ways[rng.choice(len(ways), p=chances / chances.sum())]
            try:
                way(rng)
            except Exception as error:
                with self._lock:
                    self.wrong.append(f"{way.__name__}: {error!r}")
                self._stop.set()
                return
            else:
                with self._lock:
                    self.done[way.__name__.strip("_")] += 1

    def _run_arrays(self, rng: np.random.Generator, executor: Executor | None = None) -> None:
        which = int(rng.integers(BATCHES))
        self._check(which, (executor or self._shared).run_sync([self._images[which]])[0])

    def _run_tensors(self, rng: np.random.Generator) -> None:
        which = int(rng.integers(BATCHES))
        image = self._images[which]
        # The tensors are larger than needed: the input's desc gives its shape, and the output's desc gets it.
        with (
            Tensor.with_size(self._device, TensorDesc(DataType.FLOAT32, (-1, 8, 8, 1)), 2 * image.nbytes) as x,
            Tensor.with_size(self._device, TensorDesc(DataType.FLOAT32, (-1, 10)), 4096) as y,
        ):
            x.desc.shape = image.shape
            x.numpy()[:] = image
            self._shared.run_sync([x], [y])
            self._check(which, y.numpy())

    def _run_many(self, rng: np.random.Generator) -> None:
        chosen = rng.integers(BATCHES, size=12).tolist()
        futures = [self._shared.submit([self._images[which]]) for which in chosen]
        for which, future in zip(chosen, futures, strict=True):
            self._check(which, future.result(HANG_S)[0])

    def _run_async(self, rng: np.random.Generator) -> None:
        which = int(rng.integers(BATCHES))
        with self._lock:
            run = self._next_run
            self._next_run += 1
            self._pending[run] = which
        self._shared.run_async([self._images[which]], timeout_ms=int(HANG_S * 1000), user_data=run)

    def _on_run_done(self, run: int, outputs: Any, error: NnrtError | None) -> None:
        with self._called_back:
            which = self._pending.pop(run, None)
            self._called_back.notify_all()
            if which is None or error is not None:
                self.wrong.append(f"run {run} was called back with {error!r}, and was of image {which}")
                return
        self._check(which, outputs[0])

    def _run_short_of_time(self, rng: np.random.Generator) -> None:
        which = int(rng.integers(BATCHES))
        try:
            outputs = self._shared.run_sync([self._images[which]], timeout_ms=int(rng.integers(1, 4)))
        except TimedOut:
            return
        self._check(which, outputs[0])

    def _cancel(self, rng: np.random.Generator) -> None:
        which = int(rng.integers(BATCHES))
        future: Future[Any] = self._shared.submit([self._images[which]])
        future.cancel()
        try:
            self._check(which, future.result(HANG_S)[0])
        except CancelledError:
            return

    def _ask(self, rng: np.random.Generator) -> None:
        self._device.status()
        assert self._runtime.devices() == [self._device]
        assert all(answer.supported for answer in self._model.supported_operations(self._device))
        low, high = self._shared.input_dim_range(0)
        assert low[1:] == high[1:] == (8, 8, 1)

    def _build(self, rng: np.random.Generator) -> None:
        with Compilation(self._model, self._device) as compilation:
            compilation.build()
            executor = Executor(compilation)
        with executor:
            self._run_arrays(rng, executor)

    def _build_from_cache(self, rng: np.random.Generator) -> None:
        with Compilation(self._model, self._device) as compilation:
            compilation.set_cache(self._cache, 1)
            compilation.build()
            blob = compilation.export_cache()
        with Compilation.for_cache(self._device) as compilation:
            compilation.import_cache(blob)
            compilation.build()
            with Executor(compilation) as executor:
                self._run_arrays(rng, executor)

    def _check(self, which: int, output: NDArray[Any]) -> None:
        if not np.array_equal(output, self._expected[which]):
            with self._lock:
                self.wrong.append(f"image batch {which} gave another answer")
            self._stop.set()
