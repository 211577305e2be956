"""How the runs of a model are made, wherever it is."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from time import monotonic, perf_counter_ns
from typing import Any

from nnrt_client.run.future import WRITE_S
from nnrt_client.run.result import RunResult
from nnrt_client.run.run import Run
from nnrt_client.run.run_tensors import NewArray, RunTensors
from nnrt_client.run.signature import Inputs, Signature
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import NnrtError, OperationFailed, OperationForbidden

# A NewArray stands for an output that is to come as an array.
Targets = Sequence[RunTensor[Any] | NewArray]


class Dispatcher(Closable, ABC):
    """Makes the runs of one model: on one session, on several, or in parts. The executor that has it closes it."""

    # What errors call it once it is closed.
    kind = "session"
    # What a run may take without a timeout, of which no daemon is told.
    bound_s = math.inf
    is_open = True
    # Set by constructors. The inputs and outputs of the model.
    signature: Signature
    # Makes a run, which is among `runs` until it has ended.
    new_run: Callable[[], Run]
    runs: set[Run]
    # Sends a run, and waits for its end. Raises what is known before anything is sent.
    run_here: Callable[[Run], None]
    # Sends a run, which ends some time. Raises what is known before anything is sent.
    start: Callable[[Run], None]
    # Has a thread for callbacks call something.
    call_back: Callable[..., object]

    @property
    @abstractmethod
    def death(self) -> NnrtError | None:
        """Why no run can be made any more; None while it can, as far as is known."""

    @abstractmethod
    def give_up(self, run: Run, *, is_left: bool = False) -> None:
        """End a run that was given up, wherever it is. `is_left`: the thread that waited for it does so no more."""

    def run(
        self,
        inputs: Inputs,
        outputs: Targets | None,
        timeout_ms: int | None,
        unwanted: Sequence[int] = (),
        run: Run | None = None,
    ) -> RunResult[Any]:
        """Run and wait for the outputs; in place of an unwanted one comes anything. See `Executor.run_sync`."""
        result: RunResult[Any] | None
        error: NnrtError | None
        run = run or self.new_run()
        try:
            self._accept(run, inputs, outputs, timeout_ms, unwanted)
            self.run_here(run)
            result, error = run.take()
            if error is not None:
                raise error
            assert result is not None
            if (stamps := result._stamps) is not None:
                stamps.woken_ns = perf_counter_ns()
            return result
        except BaseException:
            self._abandon(run)
            raise
        finally:  # The error knows this frame: a cycle would keep tensors until it is looked for.
            run = result = error = None

    def begin(
        self,
        inputs: Inputs,
        outputs: Targets | None,
        timeout_ms: int | None,
        unwanted: Sequence[int],
        attach: Callable[[Run], bool],
    ) -> None:
        """Start a run that no thread waits for. `attach` says who is told of its end; false where it has ended. Raises
        what `run` raises before anything is sent; nobody is told then."""
        run = self.new_run()
        try:
            self._accept(run, inputs, outputs, timeout_ms, unwanted)
            if not attach(run):
                raise self._closed()
            self.start(run)
        except BaseException:
            run.on_ended, run.keeps_tensors = None, False
            self._abandon(run)
            raise

    def cancel(self, run: Run, reason: NnrtError) -> bool:
        """Give a run up for a reason; false where it has ended, or was given up for another one."""
        if run.give_up(reason):
            self.give_up(run)
        return run.given_up is reason

    def end(self, others: Iterable[Run] = ()) -> bool:
        """Begin no more runs, and end those in flight, and others: with the death of the daemon, if it has died. False
        where this has been done before."""
        is_first, self.is_open = self.is_open, False
        for run in {*list(self.runs), *others}:
            self.cancel(run, self.death or OperationFailed(f"the {self.kind} was closed"))
        return is_first

    def fit(self, run: Run, inputs: Inputs, outputs: Targets | None) -> None:
        """Give a run its inputs and outputs. Raises what `run` raises for those that don't fit."""
        signature = run.signature
        given = None
        if outputs is not None or signature.session.death is not None:
            given = signature.in_order(inputs)
            if outputs is not None:
                signature.require_output_count(outputs)
            signature.require_alive()
        arrays = signature.arrays(inputs) if outputs is None else None
        if arrays is None:
            run.tensors = tensors = RunTensors(signature, outputs)
            tensors.hold(signature.in_order(inputs) if given is None else given)
            arrays = [signature.fitting(index, given) for index, given in enumerate(tensors.inputs)]
        run.inputs = arrays

    def _accept(
        self, run: Run, inputs: Inputs, outputs: Targets | None, timeout_ms: int | None, unwanted: Sequence[int]
    ) -> None:
        """Give a run all that it needs. Raises what `run` raises before anything is sent."""
        if timeout_ms is None:
            run.deadline = monotonic() + self.bound_s
        else:
            run.limit(timeout_ms)
        run.unwanted = unwanted
        self.fit(run, inputs, outputs)
        self.runs.add(run)
        if not self.is_open:
            raise self._closed()

    def _abandon(self, run: Run) -> None:
        """End a run whose begin, or the wait for it, was interrupted: nothing is written after this has returned."""
        reason = OperationFailed("the run was given up")
        if not run.id and run.link is None:  # The dispatcher has nothing of it.
            run.fail(reason)
        elif not run.ended.is_set:
            run.give_up(reason)
            self.give_up(run, is_left=True)
            run.ended.wait(WRITE_S)

    def _closed(self) -> NnrtError:
        return OperationForbidden(f"the {self.kind} is closed; make a new one")
