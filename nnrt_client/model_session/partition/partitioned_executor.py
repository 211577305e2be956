"""Running a model that is cut into parts: some on a device, the others here."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from nnrt_client.model_session.partition.deadlines import Deadlines
from nnrt_client.model_session.partition.partitioned_run import PartitionedFuture, PartitionedRun, ReadyPart
from nnrt_client.model_session.partition.report import PartitionReport
from nnrt_client.run.result import RunResult
from nnrt_client.run.signature import Inputs, Signature, item_at
from nnrt_client.session.closable import Closable
from nnrt_client.session.device import Device
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_client.tensors.tensor import Tensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import InvalidParameter, OperationFailed, OperationForbidden, Unsupported
from nnrt_hdi.tensor import TensorSpec

Convert = Callable[[RunResult[Any]], Any]


class PartitionedExecutor(Closable):
    """Runs a model in parts, from any number of threads; used as an Executor is.

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
        self._signature = Signature(device._session(), 0, tuple(spec for spec, _ in inputs), tuple(outputs))
        self._resources = resources
        self._runs: set[PartitionedRun] = set()
        self._deadlines = Deadlines()
        self._is_open = True

    @property
    def _is_living(self) -> bool:
        """True while the daemon lives, as far as the session knows."""
        return self._signature.session.is_alive

    @property
    def input_count(self) -> int:
        """Number of inputs that a run takes."""
        return len(self._signature.inputs)

    @property
    def output_count(self) -> int:
        """Number of outputs that a run gives."""
        return len(self._signature.outputs)

    def input_desc(self, index: int) -> TensorDesc:
        """Description of an input, -1 where a dimension varies; the caller's own. Raises InvalidParameter."""
        return TensorDesc._from_spec(item_at(self._signature.inputs, index, "input"))

    def output_desc(self, index: int) -> TensorDesc:
        """Description of an output as far as it is known before a run; the caller's own. Raises InvalidParameter."""
        return TensorDesc._from_spec(item_at(self._signature.outputs, index, "output"))

    def run_sync(self, inputs: Inputs, outputs: None = None, *, timeout_ms: int | None = None) -> RunResult[Any]:
        """Run and wait for the outputs: read-only arrays in the model's order. Raises what `Executor.run_sync` raises,
        and OperationFailed where a part fails in ONNX Runtime."""
        return self._run(inputs, outputs, timeout_ms)

    def _run(
        self, inputs: Inputs, outputs: Sequence[Any] | None, timeout_ms: int | None, unwanted: Sequence[int] = ()
    ) -> RunResult[Any]:
        """See `run_sync`."""
        future = self._submit(inputs, outputs, timeout_ms, None, unwanted)
        try:
            result: RunResult[Any] = future.result()
            return result
        except BaseException:
            future.cancel()
            raise
        finally:  # An error knows this frame.
            del future

    def submit(
        self, inputs: Inputs, outputs: None = None, *, timeout_ms: int | None = None
    ) -> "PartitionedFuture[RunResult[Any]]":
        """Start a run; its outputs are the result of the future, which stops all parts when it is cancelled."""
        return self._submit(inputs, outputs, timeout_ms, None)

    def _submit(
        self,
        inputs: Inputs,
        outputs: Sequence[Any] | None,
        timeout_ms: int | None,
        convert: Convert | None,
        unwanted: Sequence[int] = (),
    ) -> "PartitionedFuture[Any]":
        """See `submit`; the future's result is what `convert` makes of the run's. Unwanted outputs come, too."""
        if outputs is not None:
            raise Unsupported("a model that runs in parts gives new arrays; give no tensors for its outputs")
        if timeout_ms is not None and not (type(timeout_ms) is int and timeout_ms >= 1):
            raise InvalidParameter(f"timeout_ms is {timeout_ms!r}; use a whole number of 1 or more")
        given = self._checked(inputs)
        if not self._is_open:
            raise OperationForbidden("the session is closed; load the model again")
        names = [spec.name for spec in self._signature.inputs]
        future: PartitionedFuture[Any] = PartitionedFuture()
        run = PartitionedRun(
            self._parts,
            dict(zip(names, given, strict=True)),
            self._sizes(given),
            timeout_ms,
            partial(self._ended, future, convert),
        )
        future._bind(run)
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

    def _ended(self, future: "PartitionedFuture[Any]", convert: Convert | None, run: PartitionedRun) -> None:
        self._runs.discard(run)
        self._deadlines.discard(run)
        error, value = run.error, None
        if error is None:
            try:
                result = RunResult([self._output(run, spec.name) for spec in self._signature.outputs], None, None)
                value = result if convert is None else convert(result)
            except Exception as failure:
                error = failure
        future._settle(value, error)

    def _output(self, run: PartitionedRun, name: str) -> Any:
        value = run.values[name]
        if all(name != spec.name for spec in self._signature.inputs):
            return value
        # An input that is an output: what it is now.
        array = np.array(value.numpy() if isinstance(value, Tensor | ResidentTensor) else value)
        array.flags.writeable = False
        return array

    def _checked(self, inputs: Inputs) -> list[Any]:
        """The inputs in the model's order: arrays, and tensors as they are. Raises InvalidParameter, or
        UnavailableDevice."""
        signature = self._signature
        given = signature.in_order(inputs)
        signature.require_alive()
        for at, one in enumerate(given):
            if isinstance(one, RunTensor):
                spec, shape = signature.inputs[at], one.desc.shape or ()
                if one.desc._to_spec().data_type != spec.data_type or not spec.accepts(shape):
                    raise InvalidParameter(f"it is {one.desc}; the model takes {spec}", place=signature.input_place(at))
            else:
                given[at] = np.asarray(signature.fitting(at, one))
        return given

    def _sizes(self, given: Sequence[Any]) -> Mapping[str, int]:
        """The sizes that dimensions with names have in a run."""
        sizes: dict[str, int] = {}
        for dims, one in zip(self._dims, given, strict=True):
            shape = (one.desc.shape or ()) if isinstance(one, RunTensor) else one.shape
            sizes.update((dim, size) for dim, size in zip(dims, shape, strict=False) if isinstance(dim, str))
        return sizes
