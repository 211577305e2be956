"""The interface by which a session runs its model."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnrt_client.run.future import Convert, RunFuture
from nnrt_client.run.result import RunResult
from nnrt_client.run.run_tensors import NewArray
from nnrt_client.run.signature import Inputs, Signature, item_at
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import TensorSpec

# A NewArray stands for an output that is to come as an array.
Targets = Sequence[RunTensor[Any] | NewArray]


class BaseExecutor(Closable):
    """Runs a model that is on a device, whole or in part, or on several, from any number of threads."""

    # Set by constructors.
    _signature: Signature
    # Those that have not ended.
    _runs: set[Any]

    @property
    def input_count(self) -> int:
        """Number of inputs that a run takes."""
        return len(self._specs[0])

    @property
    def output_count(self) -> int:
        """Number of outputs that a run gives."""
        return len(self._specs[1])

    def input_desc(self, index: int) -> TensorDesc:
        """Description of an input, -1 where a dimension varies; the caller's own. Raises InvalidParameter."""
        return TensorDesc._from_spec(item_at(self._specs[0], index, "input"))

    def output_desc(self, index: int) -> TensorDesc:
        """Description of an output as far as it is known before a run; the caller's own. Raises InvalidParameter."""
        return TensorDesc._from_spec(item_at(self._specs[1], index, "output"))

    @property
    def _specs(self) -> tuple[Sequence[TensorSpec], Sequence[TensorSpec]]:
        """Inputs and outputs."""
        return self._signature.inputs, self._signature.outputs

    @property
    def _is_living(self) -> bool:
        """True while the daemon lives, as far as the session knows."""
        return self._signature.session.is_alive

    @abstractmethod
    def _run(
        self, inputs: Inputs, outputs: Targets | None, timeout_ms: int | None, unwanted: Sequence[int] = ()
    ) -> RunResult[Any]:
        """Run and wait for the outputs; in place of an unwanted one comes anything."""

    @abstractmethod
    def _submit(
        self,
        inputs: Inputs,
        outputs: Targets | None,
        timeout_ms: int | None,
        convert: Convert | None,
        unwanted: Sequence[int] = (),
    ) -> RunFuture[Any]:
        """Start a run; the future's result is what `convert` makes of the run's."""


def require_timeout(timeout_ms: int, otherwise: str = "") -> None:
    """Raise InvalidParameter for what is no number of milliseconds; `otherwise` says what holds without."""
    if isinstance(timeout_ms, bool) or not (isinstance(timeout_ms, int | np.integer) and timeout_ms >= 1):
        raise InvalidParameter(f"timeout_ms is {timeout_ms!r}; use a whole number of 1 or more{otherwise}")
