"""Running a compiled model."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, overload

from numpy.typing import NDArray
from typing_extensions import Self

from nnrt_client.build.compilation import Compilation
from nnrt_client.run.callbacks import Callbacks
from nnrt_client.run.dispatcher import Dispatcher, Targets
from nnrt_client.run.future import Convert, RunFuture
from nnrt_client.run.model_dispatcher import ModelDispatcher
from nnrt_client.run.result import RunResult
from nnrt_client.run.run import Run
from nnrt_client.run.signature import Inputs, item_at
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationForbidden, UnavailableDevice
from nnrt_hdi.tensor import Shape

_log = logging.getLogger(__name__)

Output = NDArray[Any]
OutputTensors = Sequence[RunTensor[Any]]
OnRunDone = Callable[[Any, Any, NnrtError | None], object]
OnServiceDied = Callable[[Any], object]


class Executor(Closable):
    """Runs a built compilation, from any number of threads.

    Inputs are arrays or Tensors in the model's order, or by the names of its inputs; they must have exactly the model's
    data types. Outputs come in the model's order and have the model's data types: read-only arrays (copy one to change
    it), or the Tensors that were given for them, which must be big enough, as only the run may tell; after a run that
    failed these hold anything. Runs are independent of each other and may overlap, so each needs outputs of its own. An
    executor whose daemon died stays dead: build again.
    """

    def __init__(self, compilation: Compilation) -> None:
        """Raises OperationForbidden for a compilation that isn't built, UnavailableDevice if its daemon died since."""
        if not isinstance(compilation, Compilation):
            raise InvalidParameter(f"the compilation is {compilation!r}; give a Compilation")
        self._take(ModelDispatcher(compilation._prepared()))

    @classmethod
    def _of(cls, dispatcher: Dispatcher) -> Self:
        """Run a model that no Compilation has built. The executor takes it over."""
        executor = cls.__new__(cls)
        executor._take(dispatcher)
        return executor

    def _take(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._run = dispatcher.run
        self._on_run_done: OnRunDone | None = None
        self._on_service_died: OnServiceDied | None = None
        self._callbacks = Callbacks(dispatcher.call_back)

    @property
    def input_count(self) -> int:
        """Number of inputs that a run takes."""
        return len(self._dispatcher.signature.inputs)

    @property
    def output_count(self) -> int:
        """Number of outputs that a run gives."""
        return len(self._dispatcher.signature.outputs)

    def input_desc(self, index: int) -> TensorDesc:
        """Description of an input, -1 where a dimension varies; the caller's own. Raises InvalidParameter."""
        return TensorDesc._from_spec(item_at(self._dispatcher.signature.inputs, index, "input"))

    def output_desc(self, index: int) -> TensorDesc:
        """Description of an output as far as it is known before a run; the caller's own. Raises InvalidParameter."""
        return TensorDesc._from_spec(item_at(self._dispatcher.signature.outputs, index, "output"))

    def input_dim_range(self, index: int) -> tuple[Shape, Shape]:
        """Smallest and largest shape the device takes for an input. Raises InvalidParameter, OperationForbidden where
        the device doesn't say, or UnavailableDevice."""
        signature = self._dispatcher.signature
        item_at(signature.inputs, index, "input")
        ranges = signature.input_ranges()
        if ranges is None:
            raise OperationForbidden("the device does not say which shapes it takes", place=signature.session.place)
        return ranges[index].min_dims, ranges[index].max_dims

    # ---- running

    @overload
    def run_sync(self, inputs: Inputs, outputs: None = None, *, timeout_ms: int | None = None) -> RunResult[Output]: ...
    @overload
    def run_sync(
        self, inputs: Inputs, outputs: OutputTensors, *, timeout_ms: int | None = None
    ) -> RunResult[RunTensor[Any]]: ...
    def run_sync(
        self, inputs: Inputs, outputs: OutputTensors | None = None, *, timeout_ms: int | None = None
    ) -> RunResult[Any]:
        """Run and wait for the outputs: those given, or new arrays, in the model's order and with its data types.

        Raises InvalidParameter for inputs and outputs that don't fit (OutputTooSmall where only the run could tell),
        NullPointer for a missing one, OperationFailed for a Tensor smaller than its desc says, TimedOut,
        UnavailableDevice if the daemon dies, and whatever the device refuses with. Without a timeout a run may take
        `Settings.run_timeout_s`. An exception from a signal handler gives the run up: the
        daemon stops it, and no output is written after this has returned.
        """
        return self._run(inputs, outputs, timeout_ms)

    @overload
    def submit(
        self, inputs: Inputs, outputs: None = None, *, timeout_ms: int | None = None
    ) -> "RunFuture[RunResult[Output]]": ...
    @overload
    def submit(
        self, inputs: Inputs, outputs: OutputTensors, *, timeout_ms: int | None = None
    ) -> "RunFuture[RunResult[RunTensor[Any]]]": ...
    def submit(
        self, inputs: Inputs, outputs: OutputTensors | None = None, *, timeout_ms: int | None = None
    ) -> "RunFuture[Any]":
        """Start a run; its outputs are the result of the future, errors as for `run_sync` its exception.

        Raises at once what is known before anything is sent. Inputs are read where they are: leave them alone until the
        run has ended. asyncio awaits it through `asyncio.wrap_future`. Callbacks added to the future are called in the
        few threads that all devices of the runtime share.
        """
        return self._submit(inputs, outputs, timeout_ms, None)

    def _submit(
        self,
        inputs: Inputs,
        outputs: Targets | None,
        timeout_ms: int | None,
        convert: Convert | None,
        unwanted: Sequence[int] = (),
    ) -> "RunFuture[Any]":
        """See `submit`. The future's result is what `convert` makes of the run's."""
        future: RunFuture[Any] = RunFuture()
        dispatcher = self._dispatcher

        def attach(run: Run) -> bool:
            future._bind(partial(dispatcher.cancel, run), dispatcher.call_back, convert)
            return run.settle(future)

        dispatcher.begin(inputs, outputs, timeout_ms, unwanted, attach)
        return future

    def set_on_run_done(self, callback: OnRunDone) -> None:
        """Have later runs of `run_async` call this when they end: callback(user_data, outputs, error).

        The error is None or the outputs are; Tensors given for the outputs are passed in any case.
        """
        self._on_run_done = callback

    def set_on_service_died(self, callback: OnServiceDied) -> None:
        """Have later runs of `run_async` call this instead when their daemon dies: callback(user_data)."""
        self._on_service_died = callback

    def run_async(
        self, inputs: Inputs, outputs: OutputTensors | None = None, *, timeout_ms: int, user_data: Any
    ) -> None:
        """Start a run that ends in exactly one callback, on a thread of the runtime.

        Its tensors live until the callback has returned, even if they are closed before. Raises what `run_sync` raises
        before anything is sent, InvalidParameter for a timeout of 0 or less, or without user_data; OperationForbidden
        while no on_run_done is set.
        """
        expected: list[Run] = []

        def attach(run: Run) -> bool:
            if user_data is None:
                raise InvalidParameter("user_data is None; give what the callback needs to tell runs apart")
            run.limit(timeout_ms)
            done, died = self._on_run_done, self._on_service_died
            if done is None:
                raise OperationForbidden(
                    "no on_run_done is set, so nobody would learn the result; call set_on_run_done"
                )
            expected.append(run)
            self._callbacks.expect(run)
            deliver = partial(_deliver, self._dispatcher, done, died, user_data, outputs)
            # Again: `close` may have looked before.
            return self._dispatcher.is_open and run.tell(partial(self._callbacks.ended, deliver), keeps_tensors=True)

        try:
            self._dispatcher.begin(inputs, outputs, None, (), attach)
        except BaseException:
            for run in expected:
                self._callbacks.expect_no_more(run)
            raise

    def close(self) -> None:
        """End the runs in flight (their callbacks get OperationFailed, or the death of the daemon), wait for the
        callbacks, let go of the model.

        Idempotent. Called from a callback, it does not wait: two callbacks that wait for each other would never end.
        """
        is_first = self._dispatcher.end(self._callbacks.runs)
        self._callbacks.settle()
        if is_first:
            self._dispatcher.close()


def _deliver(
    dispatcher: Dispatcher,
    done: OnRunDone,
    died: OnServiceDied | None,
    user_data: Any,
    outputs: OutputTensors | None,
    result: RunResult[Any] | None,
    error: NnrtError | None,
) -> None:
    """Make the one callback of a run. An exception in it is the application's; it is logged."""
    try:
        if died is not None and isinstance(error, UnavailableDevice) and dispatcher.death is not None:
            died(user_data)
        else:
            done(user_data, result if error is None else outputs, error)
    except Exception:
        _log.exception("a callback of run %r failed", user_data)
