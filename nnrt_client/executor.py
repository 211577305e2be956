"""Running a compiled model."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, overload

from numpy.typing import NDArray
from typing_extensions import Self

from nnrt_client.bindings import Bindings
from nnrt_client.compilation import Compilation
from nnrt_client.fork import LockOwner
from nnrt_client.run_call import RunCall
from nnrt_client.run_streams import PendingRun
from nnrt_client.run_tensor import RunTensor
from nnrt_client.run_tensors import RunTensors
from nnrt_client.signature import Inputs, Signature, item_at
from nnrt_client.tensor_desc import TensorDesc
from nnrt_hdi.errors import (
    InvalidParameter,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    UnavailableDevice,
)
from nnrt_hdi.run_times import RunTimes
from nnrt_hdi.tensor import Shape

_log = logging.getLogger(__name__)

# What writing outputs into memory may take.
_WRITE_S = 10.0

# Whether this thread is inside a callback.
_callback_thread = threading.local()

Outputs = list[NDArray[Any]]
OnRunDone = Callable[[Any, Any, NnrtError | None], object]
OnServiceDied = Callable[[Any], object]


class Executor(LockOwner):
    """Runs a built compilation, from any number of threads.

    Inputs are arrays or Tensors in the model's order, or by the names of its inputs; they must have exactly the model's
    data types. Outputs are read-only arrays: copy one to change it. Or they are written into Tensors given for them,
    which must be big enough, as only the run may tell; after a run that failed these hold anything. Runs are
    independent of each other and may overlap, so each needs outputs of its own. An executor whose daemon died stays
    dead: build again.
    """

    def __init__(self, compilation: Compilation) -> None:
        """Raises OperationForbidden for a compilation that isn't built, UnavailableDevice if its daemon died since."""
        if not isinstance(compilation, Compilation):
            raise InvalidParameter(f"the compilation is {compilation!r}; give a Compilation")
        prepared = self._prepared = compilation.prepared()
        self._connection = prepared.link.connection
        self._signature = Signature(self._connection, prepared.model_id, prepared.inputs, prepared.outputs)
        try:
            self._connection.require_alive()
        except NnrtError:
            self._prepared.release()
            raise
        self._in_flight: dict[Future[Any], PendingRun] = {}
        self._undelivered = 0
        # Callbacks that no thread has begun.
        self._queued: set[Callable[[], None]] = set()
        self._is_open = True
        self._output_shapes: list[Shape] = [spec.shape for spec in self._signature.outputs]
        self._on_run_done: OnRunDone | None = None
        self._on_service_died: OnServiceDied | None = None
        self._bindings = Bindings(self._signature, self.run_sync)
        super().__init__()

    def make_locks(self) -> None:
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)

    def enter_child(self, reason: NnrtError) -> None:
        self._in_flight.clear()
        self._queued.clear()
        self._undelivered = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def input_count(self) -> int:
        return len(self._signature.inputs)

    @property
    def output_count(self) -> int:
        return len(self._signature.outputs)

    def input_desc(self, index: int) -> TensorDesc:
        """Description of an input, -1 where a dimension varies; the caller's own. Raises InvalidParameter."""
        return TensorDesc.from_spec(item_at(self._signature.inputs, index, "input"))

    def output_desc(self, index: int) -> TensorDesc:
        """Description of an output as the model declares it; the caller's own. Raises InvalidParameter."""
        return TensorDesc.from_spec(item_at(self._signature.outputs, index, "output"))

    def output_shape(self, index: int) -> Shape:
        """Shape of an output in the last successful run, before it the declared one; after one that failed because an
        output Tensor is too small, the shape it must have room for. Raises InvalidParameter."""
        return item_at(self._output_shapes, index, "output")

    @property
    def run_times(self) -> RunTimes | None:
        """Where the time of the run that succeeded last went in the daemon; None before the first."""
        return self._signature.run_times

    def input_dim_range(self, index: int) -> tuple[Shape, Shape]:
        """Smallest and largest shape the device takes for an input. Raises InvalidParameter, OperationForbidden where
        the device doesn't say, or UnavailableDevice."""
        item_at(self._signature.inputs, index, "input")
        ranges = self._signature.input_ranges()
        if ranges is None:
            raise OperationForbidden("the device does not say which shapes it takes", place=self._connection.place)
        return ranges[index].min_dims, ranges[index].max_dims

    @property
    def bindings(self) -> Bindings:
        """Inputs and outputs set one by one before a run, as NNRt had it until API 9."""
        return self._bindings

    # ---- running

    @overload
    def run_sync(self, inputs: Inputs, outputs: None = None, *, timeout_ms: int | None = None) -> Outputs: ...
    @overload
    def run_sync(
        self, inputs: Inputs, outputs: Sequence[RunTensor[Any]], *, timeout_ms: int | None = None
    ) -> Sequence[RunTensor[Any]]: ...
    def run_sync(
        self, inputs: Inputs, outputs: Sequence[RunTensor[Any]] | None = None, *, timeout_ms: int | None = None
    ) -> Outputs | Sequence[RunTensor[Any]]:
        """Run and wait for the outputs: those given, or new arrays.

        Raises InvalidParameter for inputs and outputs that don't fit, NullPointer for a missing one, OperationFailed
        for a Tensor smaller than its desc says, TimedOut, UnavailableDevice if the daemon dies, and whatever the device
        refuses with. Without a timeout a run may take as long as it likes; a dead daemon ends it all the same.
        """
        run = self._submit(inputs, outputs, timeout_ms, is_callers=True)
        future = run.future
        try:
            run.read()
            return future.result()  # type: ignore[no-any-return]
        except BaseException:
            if not run.future.done():  # Nobody waits for it any more, so it must not write any more.
                run.abandon(OperationFailed("the run was given up"))
                wait((run.future,), _WRITE_S)
            raise
        finally:
            self._in_flight.pop(future, None)
            del run, future  # Their error knows this frame: a cycle would keep tensors until it is looked for.

    @overload
    def submit(self, inputs: Inputs, outputs: None = None, *, timeout_ms: int | None = None) -> "Future[Outputs]": ...
    @overload
    def submit(
        self, inputs: Inputs, outputs: Sequence[RunTensor[Any]], *, timeout_ms: int | None = None
    ) -> "Future[Sequence[RunTensor[Any]]]": ...
    def submit(
        self, inputs: Inputs, outputs: Sequence[RunTensor[Any]] | None = None, *, timeout_ms: int | None = None
    ) -> "Future[Any]":
        """Start a run; its outputs are the result of the future, errors as for `run_sync` its exception.

        Raises at once what is known before anything is sent. Inputs are read where they are: leave them alone until the
        run has ended. asyncio awaits it through `asyncio.wrap_future`. Callbacks added to the future must return at
        once, and not wait for a run: they run on the thread that reads the replies. (Those of `run_async` may.)
        """
        run = self._submit(inputs, outputs, timeout_ms)
        run.end_when_cancelled()
        return run.future

    def set_on_run_done(self, callback: OnRunDone) -> None:
        """What later runs of `run_async` call when they end: callback(user_data, outputs, error).

        The error is None or the outputs are; Tensors given for the outputs are passed in any case.
        """
        self._on_run_done = callback

    def set_on_service_died(self, callback: OnServiceDied) -> None:
        """What later runs of `run_async` call, in place of on_run_done, when their daemon dies: callback(user_data)."""
        self._on_service_died = callback

    def run_async(
        self, inputs: Inputs, timeout_ms: int, user_data: Any, outputs: Sequence[RunTensor[Any]] | None = None
    ) -> None:
        """Start a run that ends in exactly one callback, on a thread of the runtime.

        Its tensors live until the callback has returned, even if they are closed before. Raises what `run_sync` raises
        before anything is sent, InvalidParameter for a timeout of 0 or less, or without user_data; OperationForbidden
        while no on_run_done is set.
        """
        call, tensors = self._arranged(inputs, outputs)
        done, died = self._on_run_done, self._on_service_died
        with _released_on_error(tensors):
            if user_data is None:
                raise InvalidParameter("user_data is None; give what the callback needs to tell runs apart")
            _require_timeout(timeout_ms)
            if done is None:
                raise OperationForbidden(
                    "no on_run_done is set, so nobody would learn the result; call set_on_run_done"
                )
            with self._lock:
                self._undelivered += 1
            try:
                future = self._start(call, tensors, timeout_ms).future
            except BaseException:
                self._delivered()
                raise
        future.add_done_callback(partial(self._call_back, partial(self._deliver, done, died, user_data, tensors)))

    def close(self) -> None:
        """End the runs in flight (their callbacks get OperationFailed), wait for the callbacks, let go of the model
        and of the memory of `bindings`.

        Idempotent. Called from a callback, it does not wait: two callbacks that wait for each other would never end.
        """
        with self._lock:
            is_first, self._is_open = self._is_open, False
            in_flight = list(self._in_flight.values())
        for run in in_flight:
            run.abandon(OperationFailed("the executor was closed"))
        if not getattr(_callback_thread, "inside", False):
            self._settle()
        if is_first:
            self._bindings.close()
            self._prepared.release()

    def _submit(
        self,
        inputs: Inputs,
        outputs: Sequence[RunTensor[Any]] | None,
        timeout_ms: int | None,
        is_callers: bool = False,
    ) -> PendingRun:
        if timeout_ms is not None:
            _require_timeout(timeout_ms, "; without one there is no limit")
        call, tensors = self._arranged(inputs, outputs)
        if tensors is None:
            return self._start(call, None, timeout_ms, is_callers)
        with _released_on_error(tensors):
            run = self._start(call, tensors, timeout_ms, is_callers)
        run.future.add_done_callback(lambda future: tensors.release())
        return run

    def _arranged(self, inputs: Inputs, outputs: Sequence[RunTensor[Any]] | None) -> tuple[RunCall, RunTensors | None]:
        """The run to ask for and what holds its tensors, if there are any. Raises what `run_sync` raises."""
        signature = self._signature
        given = signature.in_order(inputs)
        if outputs is not None:
            signature.require_output_count(outputs)
        signature.require_alive()
        if outputs is None and not any(isinstance(one, RunTensor) for one in given):
            return RunCall(signature, signature.fitting(given)), None
        tensors = RunTensors(signature, given, outputs)
        with _released_on_error(tensors):
            arrays, require_fit = signature.fitting(tensors.inputs), partial(self._require_fit, tensors)
            return RunCall(signature, arrays, tensors.sources, tensors.targets, require_fit), tensors

    def _start(
        self, call: RunCall, tensors: RunTensors | None, timeout_ms: int | None, is_callers: bool = False
    ) -> PendingRun:
        self._require_open()
        prepared = self._prepared
        run = prepared.link.submit(call, partial(self._results, tensors), timeout_ms, prepared.priority, is_callers)
        self._in_flight[run.future] = run
        if not self._is_open:  # `close` may have looked before.
            run.abandon(OperationFailed("the executor was closed"))
        if not is_callers:  # Who waits for it takes it out.
            run.future.add_done_callback(self._forget)
        return run

    def _require_open(self) -> None:
        if not self._is_open:
            raise OperationForbidden("the executor is closed; make a new one")

    def _forget(self, future: "Future[Any]") -> None:
        self._in_flight.pop(future, None)

    def _results(self, tensors: RunTensors | None, results: Outputs) -> Outputs | Sequence[RunTensor[Any]]:
        """What a run gives: arrays, or the tensors that were to hold them. Not called for one that is too late."""
        if tensors is None or tensors.outputs is None:
            self._output_shapes = [array.shape for array in results]
            return results
        self._require_fit(tensors, results)
        tensors.write(results)
        return tensors.outputs

    def _require_fit(self, tensors: RunTensors, results: Sequence[NDArray[Any]]) -> None:
        """Raise OperationFailed or InvalidParameter for results that can't be written into the tensors."""
        tensors.require_types(results)
        self._output_shapes = [array.shape for array in results]
        tensors.require_room(results)

    def _settle(self) -> None:
        """Wait until all callbacks have been made.

        Those that no thread has begun are made here: all threads may be in callbacks that wait for what this one holds.
        """
        while True:
            with self._lock:
                self._settled.wait_for(lambda: self._queued or not self._undelivered)
                if not self._queued:
                    return
                delivery = self._queued.pop()
            delivery()

    def _call_back(self, deliver: Callable[["Future[Any]"], None], future: "Future[Any]") -> None:
        delivery = partial(deliver, future)
        with self._lock:
            self._queued.add(delivery)
            self._settled.notify_all()
        try:
            self._prepared.link.callbacks.submit(self._make_call, delivery)
        except RuntimeError:  # The runtime has been closed meanwhile, and its threads with it.
            threading.Thread(target=self._make_call, args=(delivery,), name="nnrt-callback").start()

    def _make_call(self, delivery: Callable[[], None]) -> None:
        with self._lock:
            if delivery not in self._queued:
                return  # `_settle` makes it.
            self._queued.remove(delivery)
        delivery()

    def _deliver(
        self,
        done: OnRunDone,
        died: OnServiceDied | None,
        user_data: Any,
        tensors: RunTensors | None,
        future: "Future[Any]",
    ) -> None:
        """Make the one callback of a run. An exception in it is the application's; it is logged."""
        error = future.exception()
        _callback_thread.inside = True
        try:
            if error is None:
                done(user_data, future.result(), None)
            elif died is not None and isinstance(error, UnavailableDevice) and not self._connection.is_alive:
                died(user_data)
            else:
                outputs = None if tensors is None else tensors.outputs
                done(user_data, outputs, error if isinstance(error, NnrtError) else OperationFailed(str(error)))
        except Exception:
            _log.exception("a callback of run %r failed", user_data)
        finally:
            _callback_thread.inside = False
            if tensors is not None:
                tensors.release()
            self._delivered()

    def _delivered(self) -> None:
        with self._lock:
            self._undelivered -= 1
            self._settled.notify_all()


def _require_timeout(timeout_ms: int, otherwise: str = "") -> None:
    if not (isinstance(timeout_ms, int) and timeout_ms >= 1):
        raise InvalidParameter(f"timeout_ms is {timeout_ms!r}; use a whole number of 1 or more{otherwise}")


@contextmanager
def _released_on_error(tensors: RunTensors | None) -> Iterator[None]:
    """Let go of the tensors of a run that doesn't begin."""
    try:
        yield
    except BaseException:
        if tensors is not None:
            tensors.release()
        raise
