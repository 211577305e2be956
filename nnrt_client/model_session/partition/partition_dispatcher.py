"""Dispatcher of runs of a model in parts: some run on a device, the others in this process."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from nnrt_client.model_session.partition.deadlines import Deadlines
from nnrt_client.model_session.partition.parts_of_run import PartsOfRun, ReadyPart
from nnrt_client.model_session.partition.report import PartitionReport
from nnrt_client.run.dispatcher import Dispatcher
from nnrt_client.run.failures import nnrt_error_of
from nnrt_client.run.result import RunResult
from nnrt_client.run.run import Run
from nnrt_client.run.signature import Signature
from nnrt_client.session.device import Device
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_client.tensors.tensor import Tensor
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.tensor import TensorSpec


class PartitionDispatcher(Dispatcher):
    """Dispatcher for a model in parts.

    A part runs as soon as it has its inputs, so independent parts overlap. Runs are independent of each other.
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
        """Take the parts, and the inputs with the names of their dimensions; `close` closes `resources`."""
        self.report = report
        self._parts = parts
        self._dims = [dims for _, dims in inputs]
        specs = tuple(spec for spec, _ in inputs)
        self._session = session = device._session()
        self.call_back = session.call_back
        self.signature = Signature(session, 0, specs, tuple(outputs), has_ranges=False)
        self._resources = resources
        self._deadlines = Deadlines(self.give_up)
        self.runs = set()
        self.new_run = partial(Run, self.signature, self.runs)

    @property
    def death(self) -> NnrtError | None:
        return self._session.death

    def run_sync(self, run: Run) -> None:
        self.start(run)
        run.ended.wait()

    def start(self, run: Run) -> None:
        """Start the parts that need only the run's inputs. All outputs are computed, also unwanted ones."""
        given: Sequence[Any] = run.inputs
        if run.tensors is not None:  # Tensors go to the parts as they are.
            given = [
                tensor if isinstance(tensor, RunTensor) else array
                for tensor, array in zip(run.tensors.given, run.inputs, strict=True)
            ]
        run.link = parts = PartsOfRun(
            self._parts,
            {spec.name: one for spec, one in zip(self.signature.inputs, given, strict=True)},
            self._sizes(given),
            run,
            self._direct_targets(run, given),
            self._ended,
        )
        if run.timeout_ms:
            self._deadlines.add(run)
        parts.start()
        self.give_up(run)  # It may have been given up before the link was there.

    def give_up(self, run: Run, *, is_left: bool = False) -> None:
        """Stop all parts of a run that was given up.

        The run ends when no part writes to the application's tensors any more.
        """
        if (parts := run.link) is not None and run.given_up is not None:
            parts.give_up(run.given_up)

    def close(self) -> None:
        """Free the parts. This may be called once."""
        self._resources.close()

    def _ended(self, parts: PartsOfRun) -> None:
        run, error = parts.run, parts.error
        if run.timeout_ms:
            self._deadlines.discard(run)
        run.link = None  # It refers to the run.
        try:
            if error is None:
                outputs = [self._output(parts, spec.name) for spec in self.signature.outputs]
                tensors = run.tensors
                is_given = tensors is not None and tensors.outputs is not None
                run.succeed(tensors.collected(outputs) if tensors and is_given else RunResult(outputs))
        except Exception as failure:
            error = failure
        if error is not None:
            run.fail(nnrt_error_of(error, "a part of the model failed"))

    def _output(self, parts: PartsOfRun, name: str) -> Any:
        value = parts.values[name]
        if all(name != spec.name for spec in self.signature.inputs):
            return value
        # The output is an input, so the application gets a copy of what it is now.
        array = np.array(value.numpy() if isinstance(value, Tensor | ResidentTensor) else value)
        array.flags.writeable = False
        return array

    def _direct_targets(self, run: Run, given: Sequence[Any]) -> Mapping[str, RunTensor[Any]]:
        """Return the application's tensors that a part may write its outputs to, because nothing else reads them.

        The dispatcher copies the outputs to all other tensors of the application when all parts have run.
        """
        signature, tensors, targets = self.signature, run.tensors, {}
        outputs = {spec.name for spec in signature.outputs}
        for spec, tensor in zip(signature.outputs, (tensors and tensors.outputs) or (), strict=False):
            if not isinstance(tensor, RunTensor):
                continue
            read = {other.name for other, one in zip(signature.inputs, given, strict=True) if one is tensor}
            other_inputs = (name for part in self._parts if spec.name not in part.outputs for name in part.inputs)
            if read.isdisjoint(outputs) and read.isdisjoint(other_inputs):
                targets[spec.name] = tensor
        return targets

    def _sizes(self, given: Sequence[Any]) -> Mapping[str, int]:
        """Return the sizes that named dimensions have in a run."""
        sizes: dict[str, int] = {}
        for dims, one in zip(self._dims, given, strict=True):
            shape = (one.desc.shape or ()) if isinstance(one, RunTensor) else one.shape
            sizes.update((dim, size) for dim, size in zip(dims, shape, strict=False) if isinstance(dim, str))
        return sizes
