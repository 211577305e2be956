"""Executor: runs a compiled model."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, overload

from numpy.typing import NDArray
from typing_extensions import Self

from nnrt_client.build.compilation import Compilation
from nnrt_client.run.callbacks import Callbacks
from nnrt_client.run.dispatcher import Dispatcher, Targets
from nnrt_client.run.future import Cancelled, Convert, RunFuture
from nnrt_client.run.model_dispatcher import ModelDispatcher
from nnrt_client.run.result import RunResult
from nnrt_client.run.run import Run
from nnrt_client.run.signature import Inputs, item_at
from nnrt_client.session.io_loop import io_loop
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationForbidden, UnavailableDevice
from nnrt_hdi.packed_values import PackedSpec
from nnrt_hdi.tensor import Shape

_log = logging.getLogger(__name__)

Output = NDArray[Any]
OutputTensors = Sequence[RunTensor[Any]]
OnRunDone = Callable[[Any, Any, NnrtError | None], object]
OnServiceDied = Callable[[Any], object]


class Executor(Closable):
    """Runner of a built compilation, for any number of threads.

    Inputs are arrays or Tensors, in the model's order or by name, with exactly the model's data types. Outputs come in
    the model's order with the model's data types: read-only arrays (copy one to change it), or the Tensors given for
    them. The contents of output Tensors are undefined after a run that failed. Runs may overlap, so each needs output
    Tensors of its own. After its daemon died, an executor can't be used any more: build again.
    """

    def __init__(self, compilation: Compilation) -> None:
        """Create an executor of a built compilation.

        Raises:
            InvalidParameter: `compilation` is no Compilation.
            OperationForbidden: The compilation isn't built.
            UnavailableDevice: Its daemon has died since.
        """
        if not isinstance(compilation, Compilation):
            raise InvalidParameter(f"the compilation is {compilation!r}; give a Compilation")
        self._take(ModelDispatcher(compilation._prepared()))

    @classmethod
    def _of(cls, dispatcher: Dispatcher) -> Self:
        """Return an executor over a dispatcher, which the executor closes."""
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
        """Number of outputs of a run."""
        return len(self._dispatcher.signature.outputs)

    def input_desc(self, index: int) -> TensorDesc:
        """Return the description of an input, with -1 for open dimensions.

        Returns:
            A copy, which the caller may change.

        Raises:
            InvalidParameter: There is no such input.
        """
        return TensorDesc._from_spec(item_at(self._dispatcher.signature.inputs, index, "input"))

    def output_desc(self, index: int) -> TensorDesc:
        """Return the description of an output, as far as it is known before a run.

        Returns:
            A copy, which the caller may change.

        Raises:
            InvalidParameter: There is no such output.
        """
        return TensorDesc._from_spec(item_at(self._dispatcher.signature.outputs, index, "output"))

    def input_dim_range(self, index: int) -> tuple[Shape, Shape]:
        """Return the smallest and the largest shape that the device accepts for an input.

        Returns:
            Two shapes of the input's rank.

        Raises:
            InvalidParameter: There is no such input.
            OperationForbidden: The device doesn't report which shapes it accepts.
            UnavailableDevice: The daemon has died.
        """
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
        """Send the run and wait until it ends.

        An exception from a signal handler cancels the run: the daemon stops it, and no output is written after this
        call has returned.

        Args:
            inputs: Arrays or Tensors, in the model's order or by name.
            outputs: Tensors for the outputs, in the model's order; None returns new arrays.
            timeout_ms: Milliseconds that the run may take; None: `Settings.run_timeout_s`.

        Returns:
            The outputs: those given, or new read-only arrays, in the model's order and with its data types.

        Raises:
            InvalidParameter: An input or output doesn't fit; OutputTooSmall if only the run showed that.
            NullPointer: An input or output is missing.
            OperationFailed: A Tensor is smaller than its description says.
            TimedOut: The run took longer than its timeout.
            UnavailableDevice: The daemon died, or the device failed.
            NnrtError: The device refused the run for another reason.
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
        """Start a run and return its future.

        The client doesn't copy inputs at once: don't change them until the run has ended. A few threads, which all
        devices of the runtime share, call the callbacks added to the future. `asyncio.wrap_future` makes it awaitable.

        Args:
            inputs: As for `run_sync`.
            outputs: As for `run_sync`.
            timeout_ms: As for `run_sync`.

        Returns:
            A future whose result is what `run_sync` would return. Errors that are found before the run is sent are
            raised at once; others are the future's exception.
        """
        return self._submit(inputs, outputs, timeout_ms, None)

    def _submit(
        self,
        inputs: Inputs,
        outputs: Targets | None,
        timeout_ms: int | None,
        convert: Convert | None,
        unwanted: Sequence[int] = (),
        on_behalf_of: str | None = None,
    ) -> "RunFuture[Any]":
        """Start a run as `submit` does; `convert` turns the run's result into the future's."""
        future: RunFuture[Any] = RunFuture()
        dispatcher = self._dispatcher

        def attach(run: Run) -> bool:
            future._bind(partial(dispatcher.cancel, run), dispatcher.call_back, convert)
            return run.settle(future)

        dispatcher.begin(inputs, outputs, timeout_ms, unwanted, attach, on_behalf_of)
        return future

    async def _await(
        self,
        inputs: Inputs,
        outputs: Targets | None,
        timeout_ms: int | None,
        unwanted: Sequence[int] = (),
        on_behalf_of: str | None = None,
    ) -> RunResult[Any]:
        """Send the run, and return what `run_sync` returns, while the loop of asyncio does other things.

        Cancelling the task cancels the run. In the process' own loop (`io_loop`) no other thread takes part.

        Returns:
            The result.
        """
        loop, own = asyncio.get_running_loop(), io_loop()
        ended: asyncio.Future[None] = loop.create_future()
        begun: list[Run] = []

        def wake() -> None:
            if not ended.done():
                ended.set_result(None)

        def on_ended(run: Run) -> None:
            if loop is own.events and own.is_here:
                wake()
            else:
                with suppress(RuntimeError):  # The loop was closed.
                    loop.call_soon_threadsafe(wake)

        def attach(run: Run) -> bool:
            begun.append(run)
            return run.set_on_ended(on_ended)

        self._dispatcher.begin(inputs, outputs, timeout_ms, unwanted, attach, on_behalf_of)
        (run,) = begun
        try:
            await ended
        except asyncio.CancelledError:
            self._dispatcher.cancel(run, Cancelled("the run was cancelled"))
            raise
        run.stamps.wake()
        result, error = run.take()
        try:
            if error is not None:
                raise error
            assert result is not None
            return result
        finally:
            del error  # It refers to this frame: a cycle would keep tensors until the garbage collector runs.

    def set_on_run_done(self, callback: OnRunDone) -> None:
        """Set the callback for the end of later `run_async` runs: callback(user_data, outputs, error).

        `error` is None after a success. After a failure `outputs` is None, or the Tensors given for the outputs.
        """
        self._on_run_done = callback

    def set_on_service_died(self, callback: OnServiceDied) -> None:
        """Set the callback for the death of the daemon during later `run_async` runs: callback(user_data).

        These runs call it in place of the `on_run_done` callback.
        """
        self._on_service_died = callback

    def run_async(
        self, inputs: Inputs, outputs: OutputTensors | None = None, *, timeout_ms: int, user_data: Any
    ) -> None:
        """Start a run that ends in exactly one callback, on a thread of the runtime.

        The run's tensors live until the callback has returned, even if the application closes them before.

        Args:
            inputs: As for `run_sync`.
            outputs: As for `run_sync`.
            timeout_ms: Milliseconds that the run may take, at least 1.
            user_data: Object by which the callback tells runs apart; not None.

        Raises:
            InvalidParameter: `timeout_ms` is below 1, `user_data` is None, or an input or output doesn't fit.
            OperationForbidden: No `on_run_done` is set.
        """
        expected: list[Run] = []

        def attach(run: Run) -> bool:
            if user_data is None:
                raise InvalidParameter("user_data is None; give what the callback needs to tell runs apart")
            run.limit(timeout_ms)
            done, died, callbacks = self._on_run_done, self._on_service_died, self._callbacks
            if done is None:
                raise OperationForbidden(
                    "no on_run_done is set, so nobody would learn the result; call set_on_run_done"
                )
            expected.append(run)
            callbacks.expect(run)
            deliver = partial(_deliver, self._dispatcher, done, died, user_data, outputs)
            # Check again: `close` may have looked for runs before this one was added.
            return self._dispatcher.is_open and run.set_on_ended(partial(callbacks.start, deliver), keeps_tensors=True)

        try:
            self._dispatcher.begin(inputs, outputs, None, (), attach)
        except BaseException:
            for run in expected:
                self._callbacks.expect_no_more(run)
            raise

    def close(self) -> None:
        """End the runs in flight, wait for their callbacks, and release the model. Idempotent.

        Callbacks get OperationFailed, or the error of the daemon's death. A call from a callback does not wait, because
        two callbacks that wait for each other would never end.
        """
        is_first = self._dispatcher.end(self._callbacks.runs)
        self._callbacks.settle()
        if is_first:
            self._dispatcher.close()


def packed_ends(executor: Executor) -> list[PackedSpec]:
    """Return the inputs and outputs of a program that are packed values."""
    signature = executor._dispatcher.signature
    return [spec for spec in (*signature.inputs, *signature.outputs) if isinstance(spec, PackedSpec)]


def _deliver(
    dispatcher: Dispatcher,
    done: OnRunDone,
    died: OnServiceDied | None,
    user_data: Any,
    outputs: OutputTensors | None,
    result: RunResult[Any] | None,
    error: NnrtError | None,
) -> None:
    """Call the callback of a run that has ended; log an exception that the application raises in it."""
    try:
        if died is not None and isinstance(error, UnavailableDevice) and dispatcher.death is not None:
            died(user_data)
        else:
            done(user_data, result if error is None else outputs, error)
    except Exception:
        _log.exception("a callback of run %r failed", user_data)
