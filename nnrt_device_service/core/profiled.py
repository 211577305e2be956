"""A run that is to tell what its operators took."""

from collections.abc import Sequence

from nnrt_hdi.backend import Cancellation, PreparedModel
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import Array


class Profiled(PreparedModel):
    """Takes the place of a model in one run. `operators` are what that tells."""

    def __init__(self, prepared: PreparedModel) -> None:
        self._prepared = prepared
        self.operators: Sequence[OperatorTime] = ()

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        results, self.operators = self._prepared.profile(inputs, cancellation, outputs)
        return results

    def sizes(self, inputs: Sequence[Array]) -> Sizes:
        return self._prepared.sizes(inputs)
