"""Wrapper of another backend whose runs are asynchronous: a single thread computes them all.

`started.signs` defines the numbers that give a run special behaviour. The option `ends` is a FIFO: each line with a
number ends the held runs with that number. The option `runs` is the number of concurrent runs, and `inner` names the
other backend, which gets all other options.
"""

import logging
import os
import threading
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue

from started.signs import ABANDONED, AT_ONCE, DEAF, FAILS, HELD, LOST, RAISES, REFUSED, TWICE
from wrapping import WrappedBackend, WrappedModel, outcome_of

from nnrt_hdi.backend import Backend, Cancellation, PreparedModel, RunEnd, StartableModel, load_backend
from nnrt_hdi.device_buffers import DeviceRegion
from nnrt_hdi.errors import NnrtError, OutOfMemory
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array

_log = logging.getLogger(__name__)

_Work = Callable[[], None]
_RANGE = 100


class _Run:
    """Run on the device."""

    def __init__(
        self,
        compute: Callable[[], list[Array]],
        number: float,
        cancellation: Cancellation,
        on_end: Callable[[RunEnd], None],
    ) -> None:
        self.compute = compute
        self.number = number
        self.cancellation = cancellation
        self.on_end = on_end
        self.take_back: _Work = lambda: None

    @property
    def is_deaf(self) -> bool:
        return DEAF <= self.number < DEAF + _RANGE

    @property
    def is_held(self) -> bool:
        return self.is_deaf or HELD <= self.number < HELD + _RANGE


class _Chip:
    """Thread that computes runs, and the runs that it holds."""

    def __init__(self, ends: str) -> None:
        self._work: SimpleQueue[_Work] = SimpleQueue()
        self._held: list[_Run] = []
        self.fault = ""
        threading.Thread(target=self._compute, daemon=True).start()
        if ends:
            threading.Thread(target=self._listen, args=(ends,), daemon=True).start()

    def begin(self, run: _Run) -> None:
        self._work.put(partial(self._begin, run))
        if not run.is_deaf:
            run.take_back = run.cancellation.on_cancel(partial(self._work.put, partial(self._stop, run)))

    def settle(self) -> None:
        """Wait until the thread has done all earlier work."""
        is_done = threading.Event()
        self._work.put(is_done.set)
        is_done.wait()

    def _compute(self) -> None:
        while True:
            self._work.get()()

    def _listen(self, ends: str) -> None:
        with os.fdopen(os.open(ends, os.O_RDWR)) as lines:  # Opened for writing, too, so that it never ends.
            for line in lines:
                self._work.put(partial(self._let_go, float(line)))

    def _begin(self, run: _Run) -> None:
        if run.is_held:
            self._held.append(run)
        else:
            self._end(run)

    def _let_go(self, number: float) -> None:
        for run in [run for run in self._held if run.number == number]:
            self._held.remove(run)
            self._end(run)

    def _stop(self, run: _Run) -> None:
        if run in self._held:
            self._held.remove(run)
            try:
                run.cancellation.check()
            except NnrtError as error:
                run.on_end(error)

    def _end(self, run: _Run) -> None:
        run.take_back()
        if run.number == FAILS:
            run.on_end(RuntimeError("DMA fault"))
        elif run.number == LOST:
            self.fault = "the chip hangs on its bus"
            run.on_end(RuntimeError("DMA fault"))
        elif run.number == REFUSED:
            run.on_end(OutOfMemory("the chip has no room for it"))
        elif run.number == ABANDONED:
            run.on_end(CancelledError())
        else:
            run.on_end(outcome_of(run.compute))
        if run.number == TWICE:
            run.on_end(RuntimeError("DMA fault"))


class _Model(StartableModel, WrappedModel):
    def __init__(self, right: PreparedModel, chip: _Chip) -> None:
        super().__init__(right)
        self._chip = chip

    def start(
        self,
        inputs: Sequence[Array],
        cancellation: Cancellation,
        outputs: Sequence[Array | None],
        on_end: Callable[[RunEnd], None],
    ) -> None:
        first = inputs[0].copy() if isinstance(inputs[0], DeviceRegion) else inputs[0]
        number = float(first.flat[0]) if first.size else 0.0
        if number == RAISES:
            raise RuntimeError("DMA fault")
        compute = partial(self.right.run, inputs, Cancellation(), outputs)
        if number == AT_ONCE:
            on_end(compute())
        else:
            self._chip.begin(_Run(compute, number, cancellation, on_end))

    def close(self) -> None:
        self._chip.settle()
        super().close()
        _log.info("closed a model")


class _Starting(WrappedBackend):
    def __init__(self, options: Mapping[str, str]) -> None:
        given = dict(options)
        self._chip = _Chip(given.pop("ends", ""))
        concurrent_runs = int(given.pop("runs", "8"))
        super().__init__(load_backend(given.pop("inner", "reference"), given))
        self.concurrent_runs = concurrent_runs

    def fault(self) -> str:
        return self._chip.fault

    def wrapped(self, prepared: PreparedModel, graph: Graph | None) -> PreparedModel:
        return _Model(prepared, self._chip)


def create(options: Mapping[str, str]) -> Backend:
    return _Starting(options)
