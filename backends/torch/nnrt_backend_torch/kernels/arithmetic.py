"""Arithmetic on two operands, with broadcasting.

UINT64 is computed in INT64. Sums and products have the same bits there; other functions have a variant for UINT64.
"""

from collections.abc import Callable

import torch

from nnrt_backend_torch.kernels.activation import activated
from nnrt_backend_torch.kernels.kernel import COMPUTED_IN, DTYPES, LOWEST, Call, Kernel, cast, kernel, per_channel
from nnrt_hdi.enums import DataType, EltwiseMode, NodeType

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

HIGHEST = (1 << 63) - 1


def quotient(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute a / b; integers are rounded towards zero.

    Integer division by 0 gives 0, and the lowest integer divided by -1 wraps around.
    """
    if a.dtype.is_floating_point:
        return a / b
    a, b = _signed(a), _signed(b)
    whole = torch.div(a, _divisible(b), rounding_mode="trunc")
    return torch.where(b == 0, 0, torch.where(b == -1, -a, whole))


def remainder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute the remainder of a / b, with the sign of a. The remainder of an integer by 0 is 0."""
    if a.dtype is torch.float32 and a.device.type == "cpu":
        # Torch's vector code gives NaN where a / b is beyond FLOAT32, or b is denormal. FLOAT64 is exact here.
        return torch.fmod(a.double(), b.double()).float()
    return torch.fmod(a, b if a.dtype.is_floating_point else _divisible(_signed(b)))


def squared_difference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute (a - b)^2, which is "exclusive or" for BOOL."""
    return a ^ b if a.dtype is torch.bool else torch.square(a - b)


def quotient_uint64(a: torch.Tensor, b: torch.Tensor | int) -> torch.Tensor:
    """Compute a / b of UINT64, given as INT64 of the same bits, rounded down; or 0 for b = 0.

    Half of a is an INT64. Divided by b and doubled, it is the quotient or 1 less.
    H. Warren, "Hacker's Delight" (2nd edition), section 9-3.
    """
    b = a.new_full((), b) if isinstance(b, int) else b
    is_int64 = b > 0
    near = torch.where(is_int64, 2 * torch.div(_half(a), torch.where(is_int64, b, 1), rounding_mode="trunc"), 0)
    return torch.where(b == 0, 0, near + _is_least(b, a - near * b))


def remainder_uint64(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute the remainder of a / b, or 0 for b = 0."""
    return torch.where(b == 0, 0, a - quotient_uint64(a, b) * b)


def power_uint64(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute a^b from the power to half of b, which is an INT64."""
    return torch.square(torch.pow(a, _half(b))) * torch.where(b & 1 == 1, a, 1)


# For BOOL the sum is "or" and the product "and".
FUNCTIONS: dict[NodeType, Function] = {
    NodeType.ADD_FUSION: torch.add,
    NodeType.SUB_FUSION: torch.sub,
    NodeType.MUL_FUSION: torch.mul,
    NodeType.DIV_FUSION: quotient,
    NodeType.REAL_DIV: quotient,
    NodeType.MAXIMUM: torch.maximum,
    NodeType.MINIMUM: torch.minimum,
    NodeType.MOD: remainder,
    NodeType.SQUARED_DIFFERENCE: squared_difference,
}
COMBINATIONS: dict[EltwiseMode, Function] = {
    EltwiseMode.PROD: torch.mul,
    EltwiseMode.SUM: torch.add,
    EltwiseMode.MAXIMUM: torch.maximum,
}
# The variants for UINT64.
FOR_UINT64: dict[Function, Function] = {
    torch.maximum: lambda a, b: torch.where(_is_least(b, a), a, b),
    torch.minimum: lambda a, b: torch.where(_is_least(a, b), a, b),
    torch.pow: power_uint64,
    quotient: quotient_uint64,
    remainder: remainder_uint64,
}


def _kernel_of(function: Function) -> Kernel:
    """Return the kernel that casts the operands to the result's type and applies a fused activation, if any."""

    def compute(call: Call, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return activated(call, _combined(call, function, a, b))

    return compute


for _node_type, _function in FUNCTIONS.items():
    kernel(_node_type)(_kernel_of(_function))


@kernel(NodeType.ELTWISE)
def eltwise(call: Call, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute a and b combined as mode says."""
    return _combined(call, COMBINATIONS[call.attrs.mode], a, b)


@kernel(NodeType.POW_FUSION)
def pow_fusion(call: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Compute (scale x + shift)^y; a zero keeps its sign if there is no scale and shift.

    Powers of integers wrap around, and negative powers are rounded towards zero.
    """
    if (call.attrs.scale, call.attrs.shift) != (1, 0):
        # Tensors of rank 0 may stay on the host, whatever device x is on.
        scale, shift = (
            _cast(call, torch.tensor(number, dtype=torch.float64)) for number in (call.attrs.scale, call.attrs.shift)
        )
        x = _cast(call, x) * scale + shift
    return _combined(call, torch.pow, x, y)


@kernel(NodeType.SCALE_FUSION)
def scale(call: Call, x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Compute y = f(x scale + bias); scale and bias are repeated over the later dimensions of x."""
    behind = (1,) * (x.ndim - call.attrs.axis % x.ndim - scale.ndim)
    scale, bias = (_cast(call, vector).reshape(vector.shape + behind) for vector in (scale, bias))
    return activated(call, torch.addcmul(bias, _cast(call, x), scale))


@kernel(NodeType.BIAS_ADD)
def bias_add(call: Call, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Compute y = x + bias, with one bias for each channel."""
    return _cast(call, x) + per_channel(call, _cast(call, bias))


def _combined(call: Call, function: Function, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Apply a function to two operands in the result's type."""
    if call.outputs[0].data_type is DataType.UINT64:
        function = FOR_UINT64.get(function, function)
    return function(_cast(call, a), _cast(call, b))


def _cast(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Convert an operand to the result's type, and to the one that represents it; negative numbers wrap around."""
    return cast(_wrapped(call, x), call.dtype)


def _wrapped(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Convert numbers to the result's type, if it is unsigned and computed in another; leave others unchanged."""
    dtype = DTYPES[call.outputs[0].data_type]
    return x if dtype.is_floating_point or dtype not in COMPUTED_IN else x.to(dtype)


def _signed(x: torch.Tensor) -> torch.Tensor:
    """Return integers in a signed type, where -1 equals no other number."""
    return x if x.dtype.is_signed else x.to(torch.int16)


def _divisible(divisor: torch.Tensor) -> torch.Tensor:
    """Return a divisor with 1 in place of 0 and -1. Processors can't divide by 0, nor the lowest integer by -1."""
    return torch.where((divisor == 0) | (divisor == -1), 1, divisor)


def _half(x: torch.Tensor) -> torch.Tensor:
    """Compute x / 2 of UINT64, rounded down."""
    return (x >> 1) & HIGHEST


def _is_least(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute a <= b of UINT64."""
    return (a ^ LOWEST) <= (b ^ LOWEST)
