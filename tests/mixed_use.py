"""Many threads that do everything at once with one device, and account for every run.

A few seconds of it are a test; `benchmarks/soak.py` goes on for minutes and watches the memory.
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
# No call may take longer, on however busy a machine.
HANG_S = 60.0


class MixedUse:
    """One model, one executor that all threads share, and executors and compilations that they make and close."""

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
        """Keep all threads busy for that long; `watch` is called now and then with the fraction that is over."""
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
        first = ways[number::THREADS]  # So that each way is gone, however short the time.
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
        # The input has room to spare, the output is of any size: descs say what is used and what has come.
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
