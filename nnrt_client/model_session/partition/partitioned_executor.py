"""Running a model that is cut into parts: some on a device, the others here."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from nnrt_client.model_session.partition.deadlines import Deadlines
from nnrt_client.model_session.partition.partitioned_run import PartitionedRun, ReadyPart
from nnrt_client.model_session.partition.report import PartitionReport
from nnrt_client.run.base_executor import BaseExecutor, Targets, require_timeout
from nnrt_client.run.future import Convert, RunFuture
from nnrt_client.run.result import RunResult
from nnrt_client.run.run_tensors import RunTensors
from nnrt_client.run.signature import Inputs, Signature
from nnrt_client.session.device import Device
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_client.tensors.tensor import Tensor
from nnrt_hdi.errors import OperationFailed, OperationForbidden
from nnrt_hdi.tensor import TensorSpec


class PartitionedExecutor(BaseExecutor):
    """Runs a model in parts, from any number of threads.

    A part runs as soon as its inputs are there, so that independent ones overlap. Runs are independent of each other.
    """

    def __init__(
        self,
        device: Device,
        parts: Sequence[ReadyPart],
        inputs: Sequence[tuple[TensorSpec, Sequence[int | str | None]]],
        outputs: Sequence[TensorSpec],
        report: PartitionReport,
        resources: ExitStack,
    ) -> None:
        """Takes over `resources`, which are closed with the executor. Inputs come with the names of dimensions."""
        self.report = report
        self._parts = parts
        self._dims = [dims for _, dims in inputs]
        specs = tuple(spec for spec, _ in inputs)
        session = device._session()
        self._signature = Signature(session, 0, specs, tuple(outputs), has_ranges=False)
        self._resources = resources
        self._runs: set[PartitionedRun] = set()
        self._deadlines = Deadlines()
        self._is_open = True

    def _run(
        self, inputs: Inputs, outputs: Targets | None, timeout_ms: int | None, unwanted: Sequence[int] = ()
    ) -> RunResult[Any]:
        """Raises what `Executor.run_sync` raises, and OperationFailed where a part fails in ONNX Runtime."""
        result: RunResult[Any] = self._submit(inputs, outputs, timeout_ms, None, unwanted)._result_or_give_up()
        return result

    def _submit(
        self,
        inputs: Inputs,
        outputs: Targets | None,
        timeout_ms: int | None,
        convert: Convert | None,
        unwanted: Sequence[int] = (),
    ) -> "RunFuture[Any]":
        """The future stops all parts when it is cancelled. Unwanted outputs come, too."""
        if timeout_ms is not None:
            require_timeout(timeout_ms, "; without one there is no limit")
        given, tensors = self._accepted(inputs, outputs)
        try:
            if not self._is_open:
                raise OperationForbidden("the session is closed; load the model again")
            return self._started(given, tensors, timeout_ms, convert)
        except BaseException:
            if tensors is not None:
                tensors.release()
            raise

    def _started(
        self, given: Sequence[Any], tensors: RunTensors | None, timeout_ms: int | None, convert: Convert | None
    ) -> "RunFuture[Any]":
        future: RunFuture[Any] = RunFuture()
        run = PartitionedRun(
            self._parts,
            {spec.name: one for spec, one in zip(self._signature.inputs, given, strict=True)},
            self._sizes(given),
            timeout_ms,
            self._written_at_once(given, tensors),
            partial(self._ended, future, tensors),
        )
        future._bind(run.give_up, self._signature.session.call_back, convert)
        self._runs.add(run)
        if timeout_ms is not None:
            self._deadlines.add(run)
        run.start()
        if not self._is_open:  # `close` may have looked before.
            run.give_up(OperationFailed("the session was closed"))
        return future

    def close(self) -> None:
        """End the runs in flight, and free the parts. Idempotent."""
        self._is_open = False
        for run in list(self._runs):
            run.give_up(OperationFailed("the session was closed"))
        self._deadlines.close()
        self._resources.close()

    def _ended(
        self,
        future: "RunFuture[Any]",
        tensors: RunTensors | None,
        run: PartitionedRun,
    ) -> None:
        self._runs.discard(run)
        self._deadlines.discard(run)
        error, value = run.error, None
        try:
            if error is None:
                outputs = [self._output(run, spec.name) for spec in self._signature.outputs]
                is_given = tensors is not None and tensors.outputs is not None
                value = tensors.collected(outputs) if tensors and is_given else RunResult(outputs)
        except Exception as failure:
            error = failure
        if tensors is not None:
            tensors.release()
        future._settle(value, error)

    def _output(self, run: PartitionedRun, name: str) -> Any:
        value = run.values[name]
        if all(name != spec.name for spec in self._signature.inputs):
            return value
        # An input that is an output: what it is now.
        array = np.array(value.numpy() if isinstance(value, Tensor | ResidentTensor) else value)
        array.flags.writeable = False
        return array

    def _accepted(self, inputs: Inputs, outputs: Targets | None) -> tuple[list[Any], RunTensors | None]:
        """The inputs in the model's order, arrays, and tensors as they are; and what holds the tensors of the run.
        Raises what `run_sync` raises before anything is sent."""
        signature = self._signature
        given = signature.in_order(inputs)
        if outputs is not None:
            signature.require_output_count(outputs)
        signature.require_alive()
        given = [
            one if isinstance(one, RunTensor) else np.asarray(signature.fitting(at, one))
            for at, one in enumerate(given)
        ]
        if outputs is None and not any(isinstance(one, RunTensor) for one in given):
            return given, None
        tensors = RunTensors(signature, outputs)
        try:
            tensors.hold(given)
        except BaseException:
            tensors.release()
            raise
        return given, tensors

    def _written_at_once(self, given: Sequence[Any], tensors: RunTensors | None) -> Mapping[str, RunTensor[Any]]:
        """The tensors that a part may write its outputs to: those that nobody reads but it. Others are written when all
        parts have run."""
        signature, targets = self._signature, {}
        outputs = {spec.name for spec in signature.outputs}
        for spec, tensor in zip(signature.outputs, (tensors and tensors.outputs) or (), strict=False):
            if not isinstance(tensor, RunTensor):
                continue
            read = {other.name for other, one in zip(signature.inputs, given, strict=True) if one is tensor}
            elsewhere = (name for part in self._parts if spec.name not in part.outputs for name in part.inputs)
            if read.isdisjoint(outputs) and read.isdisjoint(elsewhere):
                targets[spec.name] = tensor
        return targets

    def _sizes(self, given: Sequence[Any]) -> Mapping[str, int]:
        """The sizes that dimensions with names have in a run."""
        sizes: dict[str, int] = {}
        for dims, one in zip(self._dims, given, strict=True):
            shape = (one.desc.shape or ()) if isinstance(one, RunTensor) else one.shape
            sizes.update((dim, size) for dim, size in zip(dims, shape, strict=False) if isinstance(dim, str))
        return sizes
