"""A model, ready to run: everything between a file and its numbers in one step.

with load("model.onnx", device="127.0.0.1:50051") as session:
    outputs = session.run({"x": array})
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from nnrt_client.build.build_task import BuildReport
from nnrt_client.build.way import Way
from nnrt_client.partition.partitioned_executor import PartitionedExecutor
from nnrt_client.run.executor import Executor
from nnrt_client.run.signature import Inputs, listed
from nnrt_client.session.device import Device
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import InvalidParameter, OperationForbidden
from nnrt_hdi.tensor import NUMPY_DTYPES

NamedOutputs = dict[str, NDArray[Any]]


class ModelSession:
    """A model on a device, ready to run from any number of threads. Made by `load`.

    Its inputs and outputs go by name. When the daemon dies the session is over: load the model again, there or on
    another device.
    """

    def __init__(
        self, executor: Executor | PartitionedExecutor, device: Device, report: BuildReport, resources: ExitStack
    ) -> None:
        """Takes over `resources`, all that is to be closed with the session."""
        self.device = device
        self.report = report
        self._executor = executor
        self._resources = resources
        self._is_open = True
        self._inputs = _named("input", [executor.input_desc(index) for index in range(executor.input_count)])
        self._outputs = _named("output", [executor.output_desc(index) for index in range(executor.output_count)])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ModelSession on {self.device.name}: {', '.join(self._inputs)} -> {', '.join(self._outputs)}>"

    @property
    def inputs(self) -> tuple[TensorDesc, ...]:
        """Inputs of a run: names, data types, shapes (-1 where a dimension varies) and formats; the caller's own.

        One without a name of its own is called `input0`, `input1`, ... here.
        """
        return tuple(desc.copy() for desc in self._inputs.values())

    @property
    def outputs(self) -> tuple[TensorDesc, ...]:
        """Outputs of a run, as for `inputs`; one without a name is called `output0`, ..."""
        return tuple(desc.copy() for desc in self._outputs.values())

    @property
    def way(self) -> Way:
        """The way in which the device got the model; `report.passed_over` says why not in an earlier one."""
        return self.report.way

    def run(self, inputs: Inputs, *, timeout_ms: int | None = None) -> NamedOutputs:
        """Run, and wait for the outputs by name, which are read-only arrays.

        Inputs go by name, or in the model's order. Arrays must have the model's data types; lists and numbers are
        converted. Raises what `Executor.run_sync` raises; UnavailableDevice when the daemon has died.
        """
        self._require_open()
        return self._by_name(self._executor.run_sync(self._in_order(inputs), timeout_ms=timeout_ms))

    def submit(self, inputs: Inputs, *, timeout_ms: int | None = None) -> "Future[NamedOutputs]":
        """Start a run; what `run` returns and raises is the result of the future. See `Executor.submit`."""
        self._require_open()
        return self._executor._submit(self._in_order(inputs), None, timeout_ms, self._by_name)

    def close(self) -> None:
        """End the runs in flight and free the model, on the device too. Idempotent."""
        self._is_open = False
        self._resources.close()

    def _in_order(self, inputs: Inputs) -> list[Any]:
        """The inputs in the model's order. Numbers that are no arrays yet get its data types."""
        if not isinstance(inputs, Mapping):
            given = listed(inputs)
        elif set(inputs) == set(self._inputs):
            given = [inputs[name] for name in self._inputs]
        else:
            raise InvalidParameter(f"inputs are named {sorted(inputs)}; the model's are {sorted(self._inputs)}")
        # How many there must be is for the executor to say.
        descs = (*self._inputs.values(), *[None] * len(given))
        return [_array(desc, one) for desc, one in zip(descs, given, strict=False)]

    def _by_name(self, outputs: Sequence[NDArray[Any]]) -> NamedOutputs:
        return dict(zip(self._outputs, outputs, strict=True))

    def _require_open(self) -> None:
        if not self._is_open:
            raise OperationForbidden("the session is closed; load the model again")


# ---- names


def distinct_names(what: str, names: Sequence[str]) -> list[str]:
    """Names by which inputs or outputs go: one that has none, or that of an earlier one, is given one."""
    taken = set(names)
    distinct: dict[str, None] = {}
    for index, name in enumerate(names):
        if not name or name in distinct:
            name = f"{name}#{index}" if name else f"{what}{index}"
            while name in taken:
                name += "#"
            taken.add(name)
        distinct[name] = None
    return list(distinct)


def _named(what: str, descs: Sequence[TensorDesc]) -> dict[str, TensorDesc]:
    for desc, name in zip(descs, distinct_names(what, [desc.name for desc in descs]), strict=True):
        desc.name = name
    return {desc.name: desc for desc in descs}


def _array(desc: TensorDesc | None, given: ArrayLike | RunTensor[Any]) -> Any:
    if desc is None or given is None or isinstance(given, RunTensor | np.ndarray | np.generic):
        return given
    try:
        dtype = np.dtype(NUMPY_DTYPES[desc._to_spec().data_type])
        plain = np.asarray(given)
        if dtype.kind in "iu" and plain.dtype.kind in "iu" and plain.size:
            bounds = np.iinfo(dtype.name)
            if plain.min() < bounds.min or plain.max() > bounds.max:  # numpy 1 wraps such numbers round.
                raise OverflowError(f"numbers from {plain.min()} to {plain.max()} are out of bounds for {dtype}")
        return np.asarray(given, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidParameter(str(error), place=f"input {desc.name!r}") from error
    except KeyError:
        return given
