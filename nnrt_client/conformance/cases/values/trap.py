"""Traps: nodes with unusual elements, for which a device may be wrong although it is right for most elements."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.conformance.answers import Outputs
from nnrt_client.conformance.case import Case, Level, Mark
from nnrt_client.conformance.cases.one_node import Pair, graph_of, infer_all, spec
from nnrt_client.conformance.tolerance import SUMS_IN_ANOTHER_ORDER, Tolerance
from nnrt_hdi.enums import Format, NodeType, ReduceMode
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.tensor import UNKNOWN_DIM, TensorSpec, data_type_of

AnyArray = NDArray[Any]
N = NodeType

REFUSED = "refused"
EXACT = Tolerance("the right answer is a number of the type, which every way of computing it gives", {})
SIGNED = replace(EXACT, signs_of_zeros=True)
ROUNDED = SUMS_IN_ANOTHER_ORDER

# Position of the operand whose data type the case tests, if it is not the first.
_SUBJECTS = {N.WHERE: 1, N.SELECT: 1, N.SCATTER_ND: 1, N.SPARSE_TO_DENSE: 1, N.ONE_HOT: 2}
# Several SIMD vectors and a remainder.
_LONG = 67


@dataclass(frozen=True, eq=False)
class Trap:
    """Node and its runs: the elements of all operands; constants are the same in every run.

    `wanted` has the outputs of each run, worked out by hand, or REFUSED for a run that must end with an error. If it is
    None, the oracles' outputs are right. Dimensions that differ between runs are unknown to the model; with
    `has_unknown` all are.
    """

    title: str
    node_type: NodeType
    runs: Sequence[Sequence[AnyArray]]
    wanted: Sequence[Sequence[AnyArray] | str] | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    constants: Sequence[int] = ()
    layout: Format = Format.NONE
    tolerance: Tolerance = EXACT
    ends_processes: bool = False
    declared: tuple[TensorSpec, ...] = ()
    has_unknown: bool = False

    def case(self) -> Case:
        """Return the case."""
        first = self.runs[0][_SUBJECTS.get(self.node_type, 0)]
        name = f"{self.node_type.name}-{self.title}-{first.dtype.name}"
        marks = {Mark.QUICK}
        marks |= {Mark.MAY_END_PROCESS} if self.ends_processes else set()
        marks |= {Mark.DYNAMIC} if self.has_unknown or self._varies else set()
        return Case(
            f"{Level.VALUES.value}/{name}",
            Level.VALUES,
            OPERATORS[self.node_type].family,
            (self.node_type,),
            data_type_of(first.dtype),
            partial(_made, self),
            name,
            self.tolerance,
            marks=frozenset(marks),
            by_hand=self._outputs,
        )

    @property
    def _varies(self) -> bool:
        return any([x.shape for x in run] != [x.shape for x in self.runs[0]] for run in self.runs)

    @property
    def _outputs(self) -> tuple[Outputs | None, ...] | None:
        if self.wanted is None:
            return None
        return tuple(None if isinstance(outputs, str) else tuple(outputs) for outputs in self.wanted)


def _made(trap: Trap) -> tuple[Graph, list[list[AnyArray]]]:
    operands = [_operand(trap, at) for at in range(len(trap.runs[0]))]
    outputs = infer_all(trap.node_type, operands, trap.attrs, trap.declared)
    inputs = [[x for at, x in enumerate(run) if at not in trap.constants] for run in trap.runs]
    return graph_of(trap.node_type, operands, trap.attrs, *outputs), inputs


def _operand(trap: Trap, at: int) -> Pair:
    array = trap.runs[0][at]
    layout = trap.layout if array.ndim == 4 else Format.NONE
    if at in trap.constants:
        return spec(array.shape, data_type_of(array.dtype), layout), array
    shapes = zip(*(run[at].shape for run in trap.runs), strict=True)
    shape = [dims[0] if len(set(dims)) == 1 and not trap.has_unknown else UNKNOWN_DIM for dims in shapes]
    return spec(shape, data_type_of(array.dtype), layout), None


def elementwise(
    title: str,
    node_type: NodeType,
    operands: Sequence[Sequence[Any]],
    wanted: Sequence[Any] | None,
    dtypes: Sequence[str],
    attrs: Mapping[str, Any] | None = None,
    *,
    tolerance: Tolerance = EXACT,
    ends_processes: bool = False,
    result: str = "",
) -> Iterator[Trap]:
    """Yield traps of these vectors, and of the same vectors repeated to cover SIMD code.

    `wanted` is the output worked out by hand. Its data type is `result`, or that of the operands if `result` is empty.
    """
    for dtype in dtypes:
        arrays = [np.array(elements, dtype) for elements in operands]
        right = None if wanted is None else np.array(wanted, result or dtype)
        for suffix, count in (("", len(arrays[0])), ("-long", _LONG)):
            yield Trap(
                title + suffix,
                node_type,
                [[np.resize(array, count) for array in arrays]],
                None if right is None else [[np.resize(right, count)]],
                attrs or {},
                tolerance=tolerance,
                ends_processes=ends_processes,
            )


def empty_reductions(dtype: str, *, mean: float, lowest: float, highest: float) -> Iterator[Trap]:
    """Yield the reductions of empty rows that every data type supports. Three results depend on the type."""
    for mode, right in (
        (ReduceMode.MEAN, mean),
        (ReduceMode.MAX, lowest),
        (ReduceMode.MIN, highest),
        (ReduceMode.PROD, 1),
        (ReduceMode.SUM, 0),
        (ReduceMode.SUM_SQUARE, 0),
        (ReduceMode.ASUM, 0),
        (ReduceMode.ALL, 1),
    ):
        yield empty_reduction(dtype, mode, right)


def empty_reduction(dtype: str, mode: ReduceMode, right: float) -> Trap:
    """Return a trap that reduces two empty rows."""
    return Trap(
        f"{mode.name}-of_nothing",
        N.REDUCE_FUSION,
        [[np.ones((2, 0), dtype), np.array([1], "i4")]],
        [[np.full(2, right, dtype)]],
        {"mode": mode},
        (1,),
        ends_processes=True,
    )
