"""Running a compiled model."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from nnrt_client.compilation import Compilation
from nnrt_client.fork import LockOwner
from nnrt_client.run_streams import PendingRun
from nnrt_client.tensor_desc import TensorDesc
from nnrt_hdi import wire
from nnrt_hdi.errors import (
    InvalidParameter,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    OutOfMemory,
    UnavailableDevice,
    Unsupported,
)
from nnrt_hdi.tensor import Array, Shape, TensorSpec, data_type_of, format_shape
from nnrt_hdi.v2 import prepared_model_pb2

_log = logging.getLogger(__name__)

# Whether this thread is inside a callback.
_callback_thread = threading.local()

Inputs = Sequence[ArrayLike] | Mapping[str, ArrayLike]
Outputs = list[NDArray[Any]]
OnRunDone = Callable[[Any, Outputs | None, NnrtError | None], object]
ItemT = TypeVar("ItemT")
OnServiceDied = Callable[[Any], object]


class Executor(LockOwner):
    """Runs a built compilation, from any number of threads.

    Inputs are arrays in the model's order, or by the names of its inputs; they must have exactly the model's
    data types. Outputs are read-only arrays: copy one to change it. An executor whose daemon died stays dead:
    build again.
    """

    def __init__(self, compilation: Compilation) -> None:
        """Raises OperationForbidden for a compilation that isn't built, UnavailableDevice if its daemon died since."""
        self._prepared = compilation.prepared()
        self._connection = self._prepared.link.connection
        try:
            self._connection.require_alive()
        except NnrtError:
            self._prepared.release()
            raise
        self._in_flight: set[PendingRun] = set()
        self._undelivered = 0
        self._is_open = True
        self._output_shapes: list[Shape] = [spec.shape for spec in self._prepared.outputs]
        self._on_run_done: OnRunDone | None = None
        self._on_service_died: OnServiceDied | None = None
        super().__init__()

    def make_locks(self) -> None:
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)

    def enter_child(self, reason: NnrtError) -> None:
        self._in_flight.clear()
        self._undelivered = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def input_count(self) -> int:
        return len(self._prepared.inputs)

    @property
    def output_count(self) -> int:
        return len(self._prepared.outputs)

    def input_desc(self, index: int) -> TensorDesc:
        """Description of an input, -1 where a dimension varies; the caller's own. Raises InvalidParameter."""
        return TensorDesc.from_spec(_at(self._prepared.inputs, index, "input"))

    def output_desc(self, index: int) -> TensorDesc:
        """Description of an output as the model declares it; the caller's own. Raises InvalidParameter."""
        return TensorDesc.from_spec(_at(self._prepared.outputs, index, "output"))

    def output_shape(self, index: int) -> Shape:
        """Shape of an output in the last successful run, before it the declared one. Raises InvalidParameter."""
        return _at(self._output_shapes, index, "output")

    def input_dim_range(self, index: int) -> tuple[Shape, Shape]:
        """Smallest and largest shape the device takes for an input. Raises InvalidParameter, OperationForbidden where
        the device doesn't say, or UnavailableDevice."""
        _at(self._prepared.inputs, index, "input")
        connection = self._connection
        try:
            reply = connection.call(
                connection.models.GetInputDimRanges,
                prepared_model_pb2.GetInputDimRangesRequest(model_id=self._prepared.model_id),
                connection.settings.query_timeout_s,
                "PreparedModel.GetInputDimRanges",
            )
        except Unsupported as error:
            raise OperationForbidden(error.message, place=error.place) from error
        found = _at(wire.dim_ranges(reply), index, "input range")
        return found.min_dims, found.max_dims

    # ---- running

    def run_sync(self, inputs: Inputs, *, timeout_ms: int | None = None) -> Outputs:
        """Run and wait for the outputs.

        Raises InvalidParameter for inputs that don't fit, TimedOut, UnavailableDevice if the daemon dies, and
        whatever the device refuses with. Without a timeout a run may take as long as it likes; a dead daemon
        ends it all the same.
        """
        return self.submit(inputs, timeout_ms=timeout_ms).result()

    def submit(self, inputs: Inputs, *, timeout_ms: int | None = None) -> "Future[Outputs]":
        """Start a run; its outputs are the result of the future, errors as for `run_sync` its exception.

        asyncio awaits it through `asyncio.wrap_future`. Callbacks added to the future must return at once: they run on
        the thread that reads replies.
        """
        return self._submit(inputs, timeout_ms).future

    def set_on_run_done(self, callback: OnRunDone) -> None:
        """What later runs of `run_async` call when they end: callback(user_data, outputs, error), one of them None."""
        self._on_run_done = callback

    def set_on_service_died(self, callback: OnServiceDied) -> None:
        """What later runs of `run_async` call, in place of on_run_done, when their daemon dies: callback(user_data)."""
        self._on_service_died = callback

    def run_async(self, inputs: Inputs, timeout_ms: int, user_data: Any) -> None:
        """Start a run that ends in exactly one callback, on a thread of the runtime.

        Raises what `run_sync` raises before anything is sent; InvalidParameter for a timeout of 0 or less, or
        without user_data; OperationForbidden while no on_run_done is set.
        """
        if user_data is None:
            raise InvalidParameter("user_data is None; give what the callback needs to tell runs apart")
        if timeout_ms is None:
            raise InvalidParameter("timeout_ms is None; give the milliseconds after which the run is given up")
        done, died = self._on_run_done, self._on_service_died
        if done is None:
            raise OperationForbidden("no on_run_done is set, so nobody would learn the result; call set_on_run_done")
        with self._lock:
            self._undelivered += 1
        try:
            run = self._submit(inputs, timeout_ms)
        except BaseException:
            self._delivered()
            raise
        run.future.add_done_callback(partial(self._call_back, partial(self._deliver, done, died, user_data)))

    def close(self) -> None:
        """End the runs in flight (their callbacks get OperationFailed), wait for the callbacks, let go of the model.

        Idempotent. Called from a callback, it does not wait: two callbacks that wait for each other would never end.
        """
        with self._lock:
            is_first, self._is_open = self._is_open, False
            in_flight = list(self._in_flight)
        for run in in_flight:
            self._prepared.link.streams.abandon(run, OperationFailed("the executor was closed"))
        if not getattr(_callback_thread, "inside", False):
            with self._lock:
                self._settled.wait_for(lambda: not self._undelivered)
        if is_first:
            self._prepared.release()

    def _submit(self, inputs: Inputs, timeout_ms: int | None) -> PendingRun:
        if timeout_ms is not None and not (isinstance(timeout_ms, int) and timeout_ms >= 1):
            raise InvalidParameter(
                f"timeout_ms is {timeout_ms!r}; use a whole number of 1 or more, or None for no limit"
            )
        request = self._request(inputs)
        with self._lock:
            if not self._is_open:
                raise OperationForbidden("the executor is closed; make a new one")
            run = self._prepared.link.streams.submit(request, self._outputs, timeout_ms)
            self._in_flight.add(run)
        run.future.add_done_callback(lambda future: self._in_flight.discard(run))
        return run

    def _request(self, inputs: Inputs) -> Any:
        specs = self._prepared.inputs
        if inputs is None:
            raise InvalidParameter("inputs are None; give a sequence of arrays, or a mapping by name")
        arrays = _in_order(specs, inputs) if isinstance(inputs, Mapping) else list(inputs)
        if len(arrays) != len(specs):
            raise InvalidParameter(f"{len(arrays)} inputs were given; the model takes {len(specs)}")
        fitting = [_fitting(spec, index, given) for index, (spec, given) in enumerate(zip(specs, arrays, strict=True))]
        size_bytes, limit = sum(array.nbytes for array in fitting), self._connection.welcome.limits.message_bytes
        if size_bytes > limit:
            raise OutOfMemory(
                f"the inputs have {size_bytes} bytes, of which the daemon takes {limit} at a time;"
                " run a smaller batch, or raise its --message-bytes"
            )
        messages = [wire.io_tensor_message(spec, array) for spec, array in zip(specs, fitting, strict=True)]
        return prepared_model_pb2.RunRequest(model_id=self._prepared.model_id, inputs=messages)

    def _outputs(self, reply: Any) -> Outputs:
        if reply.HasField("error"):
            raise wire.error_from_detail(reply.error)
        outputs = [wire.io_array(output) for output in reply.outputs]
        if len(outputs) != self.output_count:
            raise InvalidParameter(f"the reply has {len(outputs)} outputs; the model has {self.output_count}")
        self._output_shapes = [output.shape for output in outputs]
        return outputs

    def _call_back(self, deliver: Callable[["Future[Outputs]"], None], future: "Future[Outputs]") -> None:
        try:
            self._prepared.link.callbacks.submit(deliver, future)
        except RuntimeError:  # The runtime has been closed meanwhile, and its threads with it.
            threading.Thread(target=deliver, args=(future,), name="nnrt-callback").start()

    def _deliver(self, done: OnRunDone, died: OnServiceDied | None, user_data: Any, future: "Future[Outputs]") -> None:
        """Make the one callback of a run. An exception in it is the application's; it is logged."""
        error = future.exception()
        _callback_thread.inside = True
        try:
            if error is None:
                done(user_data, future.result(), None)
            elif died is not None and isinstance(error, UnavailableDevice) and not self._connection.is_alive:
                died(user_data)
            else:
                done(user_data, None, error if isinstance(error, NnrtError) else OperationFailed(str(error)))
        except Exception:
            _log.exception("a callback of run %r failed", user_data)
        finally:
            _callback_thread.inside = False
            self._delivered()

    def _delivered(self) -> None:
        with self._lock:
            self._undelivered -= 1
            self._settled.notify_all()


def _at(items: Sequence[ItemT], index: int, what: str) -> ItemT:
    if not 0 <= index < len(items):
        raise InvalidParameter(f"{what} index is {index}; use 0..{len(items) - 1}")
    return items[index]


def _in_order(specs: Sequence[TensorSpec], inputs: Mapping[str, ArrayLike]) -> list[ArrayLike]:
    names = [spec.name for spec in specs]
    if set(inputs) != set(names):
        raise InvalidParameter(f"inputs are named {sorted(inputs)}; the model's are {sorted(names)}")
    return [inputs[name] for name in names]


def _fitting(spec: TensorSpec, index: int, given: ArrayLike) -> Array:
    place = f"input {index}" + (f" {spec.name!r}" if spec.name else "")
    try:
        array = np.asarray(given)
        data_type = data_type_of(array.dtype)
    except (InvalidParameter, ValueError) as error:
        raise InvalidParameter(str(error), place=place) from error
    if data_type != spec.data_type or not spec.accepts(array.shape):
        raise InvalidParameter(
            f"it is {array.dtype.name}{format_shape(array.shape)}; the model takes {spec}", place=place
        )
    return array.astype(spec.numpy_dtype, copy=False)
