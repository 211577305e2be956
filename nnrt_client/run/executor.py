"""Running a compiled model."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic, perf_counter_ns
from typing import Any, overload

from numpy.typing import NDArray
from typing_extensions import Self

from nnrt_client.build.compilation import Compilation
from nnrt_client.build.prepared import PreparedHandle
from nnrt_client.run.base_executor import BaseExecutor, Targets, require_timeout
from nnrt_client.run.callbacks import Callbacks
from nnrt_client.run.descriptions import Descriptions
from nnrt_client.run.future import WRITE_S, Convert, RunFuture
from nnrt_client.run.result import RunResult
from nnrt_client.run.run import Run
from nnrt_client.run.run_tensors import RunTensors
from nnrt_client.run.session_dispatcher import SessionDispatcher
from nnrt_client.run.signature import Inputs, Signature, item_at
from nnrt_client.run.traced_run import told_run
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, OperationForbidden, UnavailableDevice
from nnrt_hdi.tensor import Shape

_log = logging.getLogger(__name__)

Output = NDArray[Any]
OutputTensors = Sequence[RunTensor[Any]]
OnRunDone = Callable[[Any, Any, NnrtError | None], object]
OnServiceDied = Callable[[Any], object]


class Executor(BaseExecutor):
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
        self._take(compilation._prepared())

    @classmethod
    def _of_prepared(cls, prepared: PreparedHandle) -> Self:
        """Run a model that no Compilation has built. The executor takes over a use of it, also where this raises."""
        executor = cls.__new__(cls)
        executor._take(prepared)
        return executor

    def _take(self, prepared: PreparedHandle) -> None:
        self._prepared = prepared
        try:
            self._session = prepared.session
            self._session.require_alive()
            self._signature = Signature(self._session, prepared.model_id, prepared.inputs, prepared.outputs)
            self._dispatcher = self._session.part(SessionDispatcher)
        except BaseException:
            prepared.release()
            raise
        # What a run may take without a timeout, of which the daemon isn't told.
        self._bound_s = self._session.settings.run_timeout_s
        # Those that have not ended.
        self._runs: set[Run] = set()
        make = Run if self._session.tracer is None else partial(told_run, self._session.tracer)
        self._new_run = partial(make, self._signature, prepared.part(Descriptions), prepared.priority, self._runs)
        self._is_open = True
        self._on_run_done: OnRunDone | None = None
        self._on_service_died: OnServiceDied | None = None
        self._callbacks = Callbacks(self._dispatcher.call_back)

    def input_dim_range(self, index: int) -> tuple[Shape, Shape]:
        """Smallest and largest shape the device takes for an input. Raises InvalidParameter, OperationForbidden where
        the device doesn't say, or UnavailableDevice."""
        item_at(self._signature.inputs, index, "input")
        ranges = self._signature.input_ranges()
        if ranges is None:
            raise OperationForbidden("the device does not say which shapes it takes", place=self._session.place)
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

    def _run(
        self, inputs: Inputs, outputs: Targets | None, timeout_ms: int | None, unwanted: Sequence[int] = ()
    ) -> RunResult[Any]:
        """See `run_sync`."""
        result: RunResult[Any] | None
        error: BaseException | None
        run: Run | None = self._new_run()
        assert run is not None
        run.unwanted = unwanted
        try:
            self._accept(run, inputs, outputs, timeout_ms)
            self._dispatcher.run_here(run)
            result, error = run.take()
            if error is not None:
                raise error
            assert result is not None
            run.stamps.woken_ns = perf_counter_ns()
            return result
        except BaseException:
            self._abandon(run)
            raise
        finally:  # The error knows this frame: a cycle would keep tensors until it is looked for.
            run = result = error = None

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
        """See `submit`."""
        run = self._new_run()
        run.unwanted = unwanted
        try:
            self._accept(run, inputs, outputs, timeout_ms)
            future: RunFuture[Any] = RunFuture()
            future._bind(partial(self._cancel, run), self._dispatcher.call_back, convert)
            if not run.settle(future):
                raise _closed()
            self._start(run)
            return future
        except BaseException:
            self._abandon(run)
            raise

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
        run = self._new_run()
        try:
            self._accept(run, inputs, outputs, None)
            if user_data is None:
                raise InvalidParameter("user_data is None; give what the callback needs to tell runs apart")
            require_timeout(timeout_ms)
            done, died = self._on_run_done, self._on_service_died
            if done is None:
                raise OperationForbidden(
                    "no on_run_done is set, so nobody would learn the result; call set_on_run_done"
                )
            run.limit(timeout_ms)
            self._callbacks.expect(run)
            self._require_open()  # Again: `close` may have looked before.
            deliver = partial(self._deliver, done, died, user_data, outputs)
            if not run.tell(partial(self._callbacks.ended, deliver), keeps_tensors=True):
                raise _closed()
            self._start(run)
        except BaseException:
            run.on_ended, run.keeps_tensors = None, False
            self._abandon(run)
            self._callbacks.expect_no_more(run)
            raise

    def close(self) -> None:
        """End the runs in flight (their callbacks get OperationFailed, or the death of the daemon), wait for the
        callbacks, let go of the model.

        Idempotent. Called from a callback, it does not wait: two callbacks that wait for each other would never end.
        """
        is_first, self._is_open = self._is_open, False
        for run in {*list(self._runs), *self._callbacks.runs}:
            self._give_up(run)
        self._callbacks.settle()
        if is_first:
            self._prepared.release()

    def _accept(self, run: Run, inputs: Inputs, outputs: Targets | None, timeout_ms: int | None) -> None:
        """Give a run its inputs and outputs. Raises what `run_sync` raises before anything is sent."""
        signature = self._signature
        if timeout_ms is not None:
            require_timeout(timeout_ms, "; without one run_timeout_s of the Settings holds")
        given = None
        if outputs is not None or self._session.death is not None:
            given = signature.in_order(inputs)
            if outputs is not None:
                signature.require_output_count(outputs)
            self._session.require_alive()
        arrays = signature.arrays(inputs) if outputs is None else None
        if arrays is None:
            run.tensors = tensors = RunTensors(signature, outputs)
            tensors.hold(signature.in_order(inputs) if given is None else given)
            arrays = [signature.fitting(index, given) for index, given in enumerate(tensors.inputs)]
        run.inputs = arrays
        if timeout_ms is None:
            run.deadline = monotonic() + self._bound_s
        else:
            run.limit(timeout_ms)
        self._runs.add(run)
        if not self._is_open:
            raise _closed()

    def _start(self, run: Run) -> None:
        self._dispatcher.start(run)
        if not self._is_open:  # `close` may have looked before.
            self._give_up(run)

    def _give_up(self, run: Run) -> None:
        """End a run of an executor that is closed; one whose daemon has died ends with that."""
        if run.give_up(self._session.death or OperationFailed("the executor was closed")):
            self._dispatcher.give_up(run)

    def _cancel(self, run: Run, reason: NnrtError) -> bool:
        """Give a run up for a reason; false where it has ended, or was given up for another one."""
        if run.give_up(reason):
            self._dispatcher.give_up(run)
        return run.given_up is reason

    def _abandon(self, run: Run) -> None:
        """End a run whose begin, or the wait for it, was interrupted: nothing is written after this has returned."""
        reason = OperationFailed("the run was given up")
        if not run.id:  # It has not come to the dispatcher.
            run.fail(reason)
        elif not run.ended.is_set:
            run.give_up(reason)
            self._dispatcher.give_up(run, is_left=True)
            run.ended.wait(WRITE_S)

    def _require_open(self) -> None:
        if not self._is_open:
            raise _closed()

    def _deliver(
        self,
        done: OnRunDone,
        died: OnServiceDied | None,
        user_data: Any,
        outputs: OutputTensors | None,
        result: RunResult[Any] | None,
        error: NnrtError | None,
    ) -> None:
        """Make the one callback of a run. An exception in it is the application's; it is logged."""
        try:
            if died is not None and isinstance(error, UnavailableDevice) and not self._session.is_alive:
                died(user_data)
            else:
                done(user_data, result if error is None else outputs, error)
        except Exception:
            _log.exception("a callback of run %r failed", user_data)


def _closed() -> OperationForbidden:
    return OperationForbidden("the executor is closed; make a new one")
