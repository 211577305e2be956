"""Functions of one operand, element by element."""

from collections.abc import Callable

import torch

from nnrt_backend_torch.kernels.kernel import DTYPES, LOWEST, Call, Kernel, computable, in_order, kernel, out_of_order
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.ops.elementwise import integer_bounds
from nnrt_hdi.ops.operands import UNSIGNED_INTEGERS

FUNCTIONS: dict[NodeType, Callable[[torch.Tensor], torch.Tensor]] = {
    NodeType.SQRT: torch.sqrt,
    NodeType.RSQRT: torch.rsqrt,
    NodeType.SQUARE: torch.square,
    NodeType.ERF: torch.erf,
    NodeType.LOG: torch.log,
    NodeType.SIN: torch.sin,
    NodeType.COS: torch.cos,
    NodeType.CEIL: torch.ceil,
    NodeType.FLOOR: torch.floor,
    NodeType.ROUND: lambda x: torch.round(x) if x.dtype.is_floating_point else x,
    NodeType.NEG: torch.neg,
    NodeType.RECIPROCAL: torch.reciprocal,
}


def _kernel_of(function: Callable[[torch.Tensor], torch.Tensor]) -> Kernel:
    def compute(call: Call, x: torch.Tensor) -> torch.Tensor:
        return function(x.to(call.dtype))

    return compute


for _node_type, _function in FUNCTIONS.items():
    kernel(_node_type)(_kernel_of(_function))


@kernel(NodeType.ABS)
def absolute(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Compute |x|."""
    return x if call.inputs[0].data_type in UNSIGNED_INTEGERS else x.to(call.dtype).abs()


@kernel(NodeType.EXPFUSION)
def exp(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Compute y = base^(shift + scale x)."""
    attrs = call.attrs
    exponent = attrs.shift + attrs.scale * x.to(call.dtype)
    return torch.exp(exponent) if attrs.base == -1 else torch.pow(attrs.base, exponent)


@kernel(NodeType.CLIP)
def clip(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Compute y = min(max(x, min), max)."""
    low, high = call.attrs.min, call.attrs.max
    if x.dtype.is_floating_point:
        # NaN as a bound gives NaN, as in numpy.
        x = x.to(call.dtype)
        for bound, limit in ((low, torch.maximum), (high, torch.minimum)):
            x = x if bound is None else limit(x, torch.tensor(bound, dtype=x.dtype, device=x.device))
        return x
    data_type = call.inputs[0].data_type
    low, high = integer_bounds(data_type, low, high)
    if data_type is DataType.UINT64:
        return out_of_order(in_order(x).clamp(low + LOWEST, high + LOWEST))
    return x.to(call.dtype).clamp(low, high)


@kernel(NodeType.CAST, on_host=(1,))
def cast(call: Call, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Cast x to the output's type; numbers beyond an integer type become its nearest one, and NaN becomes 0."""
    dtype = DTYPES[call.outputs[0].data_type]
    return to_integers(x, dtype) if x.dtype.is_floating_point and not dtype.is_floating_point else x.to(dtype)


def to_integers(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Truncate real numbers, and limit them to the range of an integer type."""
    if dtype is torch.bool:
        return x != 0
    x = computable(x).trunc()
    limits = torch.iinfo(dtype)
    # A real type may not represent the highest value, but the power of two after it.
    too_low, too_high = x < float(limits.min), x >= float(limits.max + 1)
    inside = torch.where(too_low | too_high | x.isnan(), 0.0, x).to(dtype)
    inside = torch.where(too_low, _number(limits.min, inside), inside)
    return torch.where(too_high, _number(limits.max, inside), inside)


def _number(number: int, like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(number, dtype=like.dtype, device=like.device)
