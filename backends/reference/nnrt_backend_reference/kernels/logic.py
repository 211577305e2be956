"""Comparisons, logic, and choices by a condition."""

from collections.abc import Callable

import numpy as np

from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel, kernel
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import OperationFailed

# The most elements that a failed ASSERT shows, so that messages stay short.
MOST_SHOWN = 100

# numpy compares operands of different types in one that represents both, or in FLOAT64.
FUNCTIONS: dict[NodeType, Callable[..., AnyArray]] = {
    NodeType.EQUAL: np.equal,
    NodeType.NOT_EQUAL: np.not_equal,
    NodeType.GREATER: np.greater,
    NodeType.GREATER_EQUAL: np.greater_equal,
    NodeType.LESS: np.less,
    NodeType.LESS_EQUAL: np.less_equal,
    NodeType.LOGICAL_AND: np.logical_and,
    NodeType.LOGICAL_OR: np.logical_or,
    NodeType.LOGICAL_NOT: np.logical_not,
    NodeType.WHERE: np.where,
}


def _kernel_of(function: Callable[..., AnyArray]) -> Kernel:
    def compute(_: Call, *operands: AnyArray) -> AnyArray:
        return function(*operands)

    return compute


for _node_type, _function in FUNCTIONS.items():
    kernel(_node_type)(_kernel_of(_function))


@kernel(NodeType.SELECT)
def select(_: Call, condition: AnyArray, a: AnyArray, b: AnyArray) -> AnyArray:
    """Return a where condition is true, else b; a condition with fewer dimensions selects rows."""
    return np.where(condition.reshape(condition.shape[: a.ndim] + (1,) * (a.ndim - condition.ndim)), a, b)


@kernel(NodeType.ASSERT)
def assert_(call: Call, condition: AnyArray, data: AnyArray) -> AnyArray:
    """Return condition if all of it is true.

    Raises:
        OperationFailed: An element is false. The message has the first elements of data.
    """
    if np.all(condition):
        return condition
    shown = data.reshape(-1)[: min(call.attrs.summarize, MOST_SHOWN)]
    begins = f"; data {call.inputs[1]} begins with {', '.join(map(str, shown))}" if shown.size else ""
    false = condition.size - np.count_nonzero(condition)
    raise OperationFailed(f"{false} of {condition.size} elements of condition are false{begins}")
