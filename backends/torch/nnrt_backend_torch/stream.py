"""Stream of a device, on which runs compute in order, and the threads that end them."""

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch

from nnrt_backend_torch.errors import out_of_memory, typed
from nnrt_hdi.backend import RunEnd
from nnrt_hdi.tensor import Array

_log = logging.getLogger(__name__)
# Returns the outputs of a run, once the device has computed them.
Collect = Callable[[], list[Array]]
OnEnd = Callable[[RunEnd], None]


class _Enqueued(NamedTuple):
    """Run on the stream: the event after its last work, the function that gives its outputs then, and the callback."""

    event: Any
    collect: Collect
    on_end: OnEnd


class NativeStream:
    """Stream of torch on an accelerator."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.Stream(device=device)

    def current(self) -> AbstractContextManager[Any]:
        """Return a context in which work of this thread goes to the stream."""
        # An object of its own for each use: it keeps what was the thread's stream before.
        stream = self._stream
        return torch.Stream(
            stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
        )

    def record_event(self) -> Any:
        """Return an event whose `synchronize` waits until the device has done all work so far."""
        return self._stream.record_event()

    def synchronize(self) -> None:
        """Wait until the device has done all work so far."""
        self._stream.synchronize()


class Stream:
    """Stream of a device.

    An accelerator gets the work of a run at once, and a thread waits until it has done it. Work of several callers may
    interleave there; the work of each is in order.

    On a CPU the threads of the stream compute, and nobody else does: each thread that computes gets threads of OpenMP
    of its own, which wait actively only as long as there are no more of them than processors.

    A fault of the device stays: no later work succeeds in this process. `fault` says which, and is empty until then.
    """

    def __init__(self, name: str, stream: NativeStream | None = None, threads: int = 1) -> None:
        """Start the stream.

        Args:
            name: The device's name.
            stream: Torch's stream; None for a CPU.
            threads: Number of threads. On a CPU so many runs compute at a time; an accelerator needs one.
        """
        self.fault = ""
        self._stream = stream
        self._enqueued: SimpleQueue[_Enqueued | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._end_runs, name=f"torch-{name}", daemon=True) for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def enqueue(self, compute: Callable[[], Collect], on_end: OnEnd) -> None:
        """Call a function that gives the device the work of a run. `on_end` gets what the function returns, called.

        Raises:
            Exception: The function raised it, or OutOfMemory in its place. An accelerator has finished what it was
                given, and `on_end` isn't called.
        """
        if self._stream is None:
            self._enqueued.put(_Enqueued(None, lambda: compute()(), on_end))
            return
        try:
            with self.current():
                collect = compute()
                event = self._stream.record_event()
        except BaseException as error:
            self._note_fault(error)
            self.synchronize()  # Until then it may read the run's inputs.
            raise typed(error) from error
        self._enqueued.put(_Enqueued(event, collect, on_end))

    def current(self) -> AbstractContextManager[Any]:
        """Return a context in which work of this thread goes to the stream."""
        return self._stream.current() if self._stream is not None else nullcontext()

    def synchronize(self) -> None:
        """Wait until an accelerator has done all work so far, unless it has a fault."""
        if self._stream is not None and not self.fault:
            self._stream.synchronize()

    def close(self) -> None:
        """End the threads, after they have ended all runs."""
        for _ in self._threads:
            self._enqueued.put(None)
        for thread in self._threads:
            thread.join()

    def _end_runs(self) -> None:
        if self._stream is None:
            # Libraries that torch calls ask OpenMP, which knows the number only in threads that set it.
            torch.set_num_threads(torch.get_num_threads())
        while (run := self._enqueued.get()) is not None:
            end: RunEnd
            try:
                if run.event is not None:
                    run.event.synchronize()
                end = run.collect()
            except BaseException as error:
                self._note_fault(error)
                end = out_of_memory(error) or error
            try:
                run.on_end(end)
            except Exception:  # The thread lives on: it ends other runs.
                _log.exception("the end of a run failed")
            del run, end  # Not kept while the thread waits for the next one.

    def _note_fault(self, error: BaseException) -> None:
        # Torch's class for errors of a driver; after one of a kernel every later call fails, too.
        if isinstance(error, torch.AcceleratorError):
            self.fault = self.fault or str(error).partition("\n")[0]
