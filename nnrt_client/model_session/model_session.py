"""Session of a model that is ready to run, with inputs and outputs by name.

with load("model.onnx", device="127.0.0.1:50051") as session:
    outputs = session.run({"x": array})
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnrt_client.build.build_task import BuildReport
from nnrt_client.build.way import Way
from nnrt_client.model_session.packed import pack_input, packed_values, unpack_output
from nnrt_client.run.arrays import convert_input
from nnrt_client.run.executor import Executor
from nnrt_client.run.names import named_descs
from nnrt_client.run.result import RunResult
from nnrt_client.run.run_tensors import NewArray
from nnrt_client.run.signature import Inputs, listed
from nnrt_client.sequences.sequence import LOG_BYTES
from nnrt_client.sequences.sequence import Sequence as SequenceOfRuns
from nnrt_client.sequences.states import States
from nnrt_client.session.device import Device
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import InvalidParameter, OperationForbidden
from nnrt_hdi.packed_values import ValueType
from nnrt_hdi.run_times import RunTimes

# Names of outputs, or a map from names to the tensors that they go to.
Wanted = Collection[str] | Mapping[str, RunTensor[Any] | None]


class NamedOutputs(dict[str, Any]):
    """Outputs of a run by name, in the order asked for: arrays, or the tensors that were given for them.

    Made by `ModelSession.run` and the like.
    """

    __slots__ = ("_result",)

    def __init__(self, outputs: Mapping[str, Any], result: RunResult[Any]) -> None:
        dict.__init__(self, outputs)
        self._result = result

    @property
    def times(self) -> RunTimes | None:
        """Times of the run, see `RunResult.times`."""
        return self._result.times

    @property
    def device_times(self) -> Sequence[int] | None:
        """Times of the run on the device, see `RunResult.device_times`."""
        return self._result.device_times


class ModelSession(Closable):
    """Model on a device, ready to run from any number of threads. Made by `load`.

    Inputs and outputs have names. When the daemon dies the session is over: load the model again, there or on another
    device. ReloadedSession and PooledSession do so themselves.
    """

    def __init__(self, executor: Executor, device: Device, report: BuildReport, resources: ExitStack) -> None:
        """Make a session, which closes `resources` when it is closed."""
        self._device = device
        self._report = report
        self._executor = executor
        self._resources = resources
        self._is_open = True
        self._inputs = named_descs("input", [executor.input_desc(index) for index in range(executor.input_count)])
        self._outputs = named_descs("output", [executor.output_desc(index) for index in range(executor.output_count)])
        signature = executor._dispatcher.signature
        self._packed_inputs = packed_values(self._inputs, signature.inputs)
        self._packed_outputs = packed_values(self._outputs, signature.outputs)

    def __repr__(self) -> str:
        return f"<ModelSession on {self.device.name}: {', '.join(self._inputs)} -> {', '.join(self._outputs)}>"

    @property
    def device(self) -> Device:
        """Device that runs the model; in a pool, the first of those that run it now."""
        return self._device

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices that run the model now."""
        return (self.device,)

    @property
    def report(self) -> BuildReport:
        """Report of how the device got the model; in a pool, a PoolReport of all devices that have it."""
        return self._report

    @property
    def inputs(self) -> tuple[TensorDesc, ...]:
        """Inputs of a run: names, data types, shapes (-1 where a dimension varies) and formats; copies for the caller.

        An input without a name of its own is called `input0`, `input1`, ... here.
        """
        return tuple(desc.copy() for desc in self._inputs.values())

    @property
    def outputs(self) -> tuple[TensorDesc, ...]:
        """Outputs of a run, as for `inputs`; an output without a name is called `output0`, ..."""
        return tuple(desc.copy() for desc in self._outputs.values())

    @property
    def values(self) -> dict[str, ValueType]:
        """Types of the inputs and outputs of a program that are strings, sequences or maps, by name.

        Their descriptions say UINT8, because runs send them packed into bytes. `run` takes and returns the values;
        tensors that are given for them have the bytes.
        """
        return {**self._packed_inputs, **self._packed_outputs}

    @property
    def way(self) -> Way:
        """Way in which the device got the model; `report.passed_over` says why not in an earlier one."""
        return self.report.way

    def run(
        self,
        inputs: Inputs,
        *,
        outputs: Wanted | None = None,
        writable: bool = False,
        timeout_ms: int | None = None,
        on_behalf_of: str | None = None,
    ) -> NamedOutputs:
        """Run the model, and wait for its outputs.

        Args:
            inputs: Inputs by name, or in the model's order. What has `__array__`, DLPack or the buffer protocol is read
                where it is, and must have the model's data type. Lists and numbers are converted. Strings are arrays
                or lists of str, or of bytes in UTF-8.
            outputs: Names of the outputs wanted, or a map from names to tensors to write them to (or None); without it,
                all.
            writable: Whether the arrays must be writable, for which some have to be copied; else they are read-only.
            timeout_ms: Time limit of the run; without it, that of the settings.
            on_behalf_of: Name of the identity for which the daemon counts the run: it takes that identity's share of
                the device, and counts in its limits and counters. Needs the role `serve`. Without it, your own.

        Returns:
            The outputs by name. Strings are object arrays of str, sequences are lists, maps are dicts.

        Raises:
            UnavailableDevice: The daemon has died.
            OperationForbidden: The session is closed, or the daemon allows no run on behalf of that identity.
            NnrtError: Other errors of `Executor.run_sync`.
        """
        named, targets, given = self._make_namer(outputs, writable), self._targets(outputs), self._order_inputs(inputs)
        self._require_open()
        return named(self._executor._run(given, targets, timeout_ms, self._unwanted(outputs), on_behalf_of))

    def submit(
        self,
        inputs: Inputs,
        *,
        outputs: Wanted | None = None,
        writable: bool = False,
        timeout_ms: int | None = None,
        on_behalf_of: str | None = None,
    ) -> "Future[NamedOutputs]":
        """Start a run, and return a future of the outputs that `run` returns or the error that it raises."""
        named, targets, given = self._make_namer(outputs, writable), self._targets(outputs), self._order_inputs(inputs)
        self._require_open()
        return self._executor._submit(given, targets, timeout_ms, named, self._unwanted(outputs), on_behalf_of)

    async def run_async(
        self,
        inputs: Inputs,
        *,
        outputs: Wanted | None = None,
        writable: bool = False,
        timeout_ms: int | None = None,
        on_behalf_of: str | None = None,
    ) -> NamedOutputs:
        """Run the model while asyncio's loop does other things; see `run`.

        No thread waits for the run. Cancelling the task cancels the run, on the device, too. Leave its inputs unchanged
        for a moment longer then, because they may still be being read.

        Returns:
            The outputs, as `run` returns them.
        """
        named, targets, given = self._make_namer(outputs, writable), self._targets(outputs), self._order_inputs(inputs)
        self._require_open()
        return named(await self._executor._await(given, targets, timeout_ms, self._unwanted(outputs), on_behalf_of))

    def sequence(
        self,
        initial: Mapping[str, ArrayLike] | None = None,
        *,
        states: States | None = None,
        log_bytes: int = LOG_BYTES,
        on_behalf_of: str | None = None,
    ) -> SequenceOfRuns:
        """Begin a sequence: runs whose state stays on the device. The arguments are those of `Sequence`.

        Returns:
            The sequence. Close it before the session.
        """
        self._require_open()
        return SequenceOfRuns(self._executor, states, initial, log_bytes=log_bytes, on_behalf_of=on_behalf_of)

    def close(self) -> None:
        """End the runs in flight, and free the model, on the device, too.

        Calling it again does nothing.
        """
        self._is_open = False
        self._resources.close()

    def _order_inputs(self, inputs: Inputs) -> list[Any]:
        """Return the inputs in the model's order, with numbers as arrays of its data types."""
        if not isinstance(inputs, Mapping):
            given = listed(inputs)
        elif set(inputs) == set(self._inputs):
            given = [inputs[name] for name in self._inputs]
        else:
            raise InvalidParameter(f"inputs are named {sorted(inputs)}; the model's are {sorted(self._inputs)}")
        if self._packed_inputs:
            given = self._pack(given)
        # The executor checks how many there are.
        known = [convert_input(desc, one) for desc, one in zip(self._inputs.values(), given, strict=False)]
        return known + given[len(known) :]

    def _pack(self, given: Sequence[Any]) -> list[Any]:
        """Return the inputs with packed forms in place of strings. Raise InvalidParameter for one that doesn't fit."""
        packed = list(given)
        for at, name in enumerate(self._inputs):
            if (value := self._packed_inputs.get(name)) is not None and at < len(packed):
                packed[at] = pack_input(name, value, packed[at])
        return packed

    def _targets(self, wanted: Wanted | None) -> list[Any] | None:
        """Return the tensors that the outputs go to, or None if there are none."""
        if not isinstance(wanted, Mapping) or not any(wanted.values()):
            return None
        return [wanted.get(name) or NewArray() for name in self._outputs]

    def _unwanted(self, wanted: Wanted | None) -> tuple[int, ...]:
        """Return the indices of the outputs that need not be sent."""
        if wanted is None:
            return ()
        return tuple(index for index, name in enumerate(self._outputs) if name not in wanted)

    def _make_namer(self, wanted: Wanted | None, writable: bool) -> "partial[NamedOutputs]":
        """Return a function that names the outputs of a run's result; raise InvalidParameter for unknown names."""
        if isinstance(wanted, str):
            raise InvalidParameter(f"the outputs are {wanted!r}; give a list of names")
        for name in wanted or ():
            if name not in self._outputs:
                raise InvalidParameter(f"there is no output {name!r}; the model's are {list(self._outputs)}")
        names = list(self._outputs)
        return partial(_named_outputs, perf_counter_ns(), names, wanted, writable, self._packed_outputs)

    def _require_open(self) -> None:
        if not self._is_open:
            raise OperationForbidden("the session is closed; load the model again")


def executor_of(session: ModelSession) -> Executor:
    """Return the executor of a session."""
    return session._executor


# ---- names


def _named_outputs(
    began_ns: int,
    names: Sequence[str],
    wanted: Wanted | None,
    writable: bool,
    values: Mapping[str, ValueType],
    result: RunResult[Any],
) -> NamedOutputs:
    outputs = dict(zip(names, result, strict=True))
    if wanted is not None:
        outputs = {name: outputs[name] for name in wanted}
    for name, value in values.items():
        if isinstance(packed := outputs.get(name), np.ndarray):
            outputs[name] = unpack_output(name, value, packed)
    if writable:
        outputs = {name: _writable(one) if isinstance(one, np.ndarray) else one for name, one in outputs.items()}
    named = NamedOutputs(outputs, result)
    result._hand_on(began_ns)
    return named


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array itself if this process may write to its memory, else a copy."""
    try:
        array.flags.writeable = True
    except ValueError:
        array = array.copy()
    return array
