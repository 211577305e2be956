"""Dispatcher: accepts the runs of a model, sends them, and ends them."""

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
from nnrt_hdi.access.identity import require_name
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import NnrtError, OperationFailed, OperationForbidden

# A NewArray stands for an output that comes as a new array.
Targets = Sequence[RunTensor[Any] | NewArray]


class Dispatcher(Closable, ABC):
    """Base of dispatchers of one model's runs: to one session, to a pool, or in parts. The executor closes it."""

    # What error messages call the closed object.
    kind = "session"
    # Seconds that a run without a timeout may take. Only the client knows this limit.
    bound_s = math.inf
    is_open = True
    # The model's inputs and outputs. Constructors of subclasses set this and all attributes below.
    signature: Signature
    # Creates a run. A run that was accepted is in `runs` until it ends.
    new_run: Callable[[], Run]
    runs: set[Run]
    # Sends a run and waits until it ends. Raises errors that are found before anything is sent.
    run_sync: Callable[[Run], None]
    # Sends a run and returns. Raises errors that are found before anything is sent.
    start: Callable[[Run], None]
    # Calls a function in a thread for callbacks.
    call_back: Callable[..., object]

    @property
    @abstractmethod
    def death(self) -> NnrtError | None:
        """Error that says why no run is possible any more, or None."""

    @abstractmethod
    def give_up(self, run: Run, *, is_left: bool = False) -> None:
        """End a cancelled run, wherever it is.

        Args:
            run: The run, whose `give_up` has been called.
            is_left: The thread that waited for the run has stopped waiting.
        """

    def run(
        self,
        inputs: Inputs,
        outputs: Targets | None,
        timeout_ms: int | None,
        unwanted: Sequence[int] = (),
        on_behalf_of: str | None = None,
        run: Run | None = None,
    ) -> RunResult[Any]:
        """Send a run and wait for its outputs, as `Executor.run_sync` does.

        Args:
            inputs: As for `run_sync`.
            outputs: As for `run_sync`.
            timeout_ms: As for `run_sync`.
            unwanted: Indexes of outputs that the daemon need not send; the result has arbitrary values for them.
            on_behalf_of: Name of the identity for which the daemon counts the run, or None for the session's.
            run: The run to use, or None for a new one.

        Returns:
            The result.

        Raises:
            NnrtError: As `run_sync`.
        """
        result: RunResult[Any] | None
        error: NnrtError | None
        run = run or self.new_run()
        try:
            self._accept(run, inputs, outputs, timeout_ms, unwanted, on_behalf_of)
            self.run_sync(run)
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
        finally:  # The error refers to this frame: a cycle would keep tensors until the garbage collector runs.
            run = result = error = None

    def begin(
        self,
        inputs: Inputs,
        outputs: Targets | None,
        timeout_ms: int | None,
        unwanted: Sequence[int],
        attach: Callable[[Run], bool],
        on_behalf_of: str | None = None,
    ) -> None:
        """Start a run that no thread waits for.

        Args:
            inputs: As for `run`.
            outputs: As for `run`.
            timeout_ms: As for `run`.
            unwanted: As for `run`.
            attach: Sets the callback or future that the run's end settles; returns False if the run has ended already.
            on_behalf_of: As for `run`.

        Raises:
            NnrtError: As `run`, for errors found before anything is sent. No callback is called then.
        """
        run = self.new_run()
        try:
            self._accept(run, inputs, outputs, timeout_ms, unwanted, on_behalf_of)
            if not attach(run):
                raise self._closed()
            self.start(run)
        except BaseException:
            run.on_ended, run.keeps_tensors = None, False
            self._abandon(run)
            raise

    def cancel(self, run: Run, reason: NnrtError) -> bool:
        """Cancel a run. Return False if it has ended already, or was cancelled for another reason."""
        if run.give_up(reason):
            self.give_up(run)
        return run.given_up is reason

    def end(self, others: Iterable[Run] = ()) -> bool:
        """Accept no more runs, and end the runs in flight and `others`. Return False if it had ended before.

        The runs end with the error of the daemon's death if it has died, else with OperationFailed.
        """
        is_first, self.is_open = self.is_open, False
        for run in {*list(self.runs), *others}:
            self.cancel(run, self.death or OperationFailed(f"the {self.kind} was closed"))
        return is_first

    def fit(self, run: Run, inputs: Inputs, outputs: Targets | None) -> None:
        """Check inputs and outputs and set them in the run. Raise the errors that `run` raises for them."""
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
            tensors.retain(signature.in_order(inputs) if given is None else given)
            arrays = [signature.fitting(index, given) for index, given in enumerate(tensors.inputs)]
        run.inputs = arrays

    def serve(self, run: Run, identity: str) -> None:
        """Tell the daemon to count a run for an identity. Raise InvalidParameter if no identity can have this name."""
        run.on_behalf_of = require_name(identity, "on_behalf_of")

    def _accept(
        self,
        run: Run,
        inputs: Inputs,
        outputs: Targets | None,
        timeout_ms: int | None,
        unwanted: Sequence[int],
        on_behalf_of: str | None,
    ) -> None:
        """Check a run and add it to `runs`. Raise the errors that `run` raises before anything is sent."""
        if timeout_ms is None:
            run.deadline = monotonic() + self.bound_s
        else:
            run.limit(timeout_ms)
        run.unwanted = unwanted
        if on_behalf_of is not None:
            self.serve(run, on_behalf_of)
        self.fit(run, inputs, outputs)
        self.runs.add(run)
        if not self.is_open:
            raise self._closed()

    def _abandon(self, run: Run) -> None:
        """End a run whose start or wait was interrupted. No output is written after this returns."""
        reason = OperationFailed("the run was given up")
        if not run.id and run.link is None:  # The dispatcher never got it.
            run.fail(reason)
        elif not run.ended.is_set:
            run.give_up(reason)
            self.give_up(run, is_left=True)
            run.ended.wait(WRITE_S)

    def _closed(self) -> NnrtError:
        return OperationForbidden(f"the {self.kind} is closed; make a new one")
