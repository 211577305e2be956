"""Comparisons, logic, and choices by a condition."""

from collections.abc import Callable

import torch

from nnrt_backend_torch.kernels.checks import require
from nnrt_backend_torch.kernels.kernel import LOWEST, Call, Kernel, cast_all, in_order, kernel
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import OperationFailed

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# The most elements that a failed ASSERT shows, so that messages stay short.
MOST_SHOWN = 100

COMPARISONS: dict[NodeType, Function] = {
    NodeType.EQUAL: torch.eq,
    NodeType.NOT_EQUAL: torch.ne,
    NodeType.GREATER: torch.gt,
    NodeType.GREATER_EQUAL: torch.ge,
    NodeType.LESS: torch.lt,
    NodeType.LESS_EQUAL: torch.le,
}


def _kernel_of(function: Function) -> Kernel:
    def compute(_: Call, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return function(*comparable(a, b))

    return compute


for _node_type, _function in COMPARISONS.items():
    kernel(_node_type)(_kernel_of(_function))


@kernel(NodeType.LOGICAL_AND)
def logical_and(_: Call, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return truth(a) & truth(b)


@kernel(NodeType.LOGICAL_OR)
def logical_or(_: Call, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return truth(a) | truth(b)


@kernel(NodeType.LOGICAL_NOT)
def logical_not(_: Call, x: torch.Tensor) -> torch.Tensor:
    return ~truth(x)


@kernel(NodeType.WHERE)
def where(_: Call, condition: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a where condition is true, else b."""
    a, b = in_one_type(a, b)
    return torch.where(truth(condition), a, b)


@kernel(NodeType.SELECT)
def select(call: Call, condition: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a where condition is true, else b; a condition with fewer dimensions selects rows."""
    rows = condition.reshape([*condition.shape[: a.ndim], *[1] * (a.ndim - condition.ndim)])
    return where(call, rows, a, b)


@kernel(NodeType.ASSERT)
def assert_(call: Call, condition: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Return condition if all of it is true.

    Raises:
        OperationFailed: An element is false. The message has the first elements of data.
    """
    is_true = truth(condition)

    def error() -> OperationFailed:
        # numpy writes elements in the digits of their type.
        shown = data.reshape(-1)[: min(call.attrs.summarize, MOST_SHOWN)].cpu().numpy()
        begins = f"; data {call.inputs[1]} begins with {', '.join(map(str, shown))}" if shown.size else ""
        false = condition.numel() - int(torch.count_nonzero(is_true))
        return OperationFailed(f"{false} of {condition.numel()} elements of condition are false{begins}")

    require(~is_true.all(), error)
    return condition


def truth(x: torch.Tensor) -> torch.Tensor:
    """Return whether elements are true: all but 0."""
    return x.to(torch.bool)


def in_one_type(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    """Return two tensors in a type that represents both. They have different ones if FLOAT32 became FLOAT16 or 64."""
    return [a, b] if a.dtype is b.dtype else cast_all(torch.promote_types(a.dtype, b.dtype), a, b)


def _widest(x: torch.Tensor) -> torch.dtype:
    return torch.float32 if x.device.type == "mps" else torch.float64


def comparable(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    """Return two operands in a type that torch compares: one that represents both, or the widest real one."""
    dtypes = a.dtype, b.dtype
    reals = sum(dtype.is_floating_point for dtype in dtypes)
    if reals:
        return in_one_type(a, b) if reals == len(dtypes) else cast_all(_widest(a), a, b)
    if a.dtype is b.dtype:
        return [in_order(a), in_order(b)]
    if torch.uint64 not in dtypes:
        return cast_all(torch.int64, a, b)
    if a.dtype is not torch.uint64:
        return comparable(b, a)[::-1]
    b = b.to(torch.int64)
    # A negative number is less than each UINT64, as 0 is less than 1.
    return [torch.where(b < 0, 1, in_order(a)), torch.where(b < 0, 0, b ^ LOWEST)]
