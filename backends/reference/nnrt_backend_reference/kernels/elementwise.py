"""Functions of one operand, element by element."""

from collections.abc import Callable

import numpy as np

from nnrt_backend_reference.kernels.kernel import AnyArray, AnyDType, Call, Kernel, kernel
from nnrt_backend_reference.kernels.special import erf
from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.elementwise import integer_bounds

FUNCTIONS: dict[NodeType, Callable[[AnyArray], AnyArray]] = {
    NodeType.SQRT: np.sqrt,
    NodeType.RSQRT: lambda x: np.reciprocal(np.sqrt(x)),
    NodeType.SQUARE: np.square,
    NodeType.ERF: erf,
    NodeType.LOG: np.log,
    NodeType.SIN: np.sin,
    NodeType.COS: np.cos,
    NodeType.CEIL: np.ceil,
    NodeType.FLOOR: np.floor,
    NodeType.ROUND: lambda x: np.rint(x) if x.dtype.kind == "f" else x,
    NodeType.NEG: np.negative,
    NodeType.ABS: np.abs,
    NodeType.RECIPROCAL: np.reciprocal,
}


def _kernel_of(function: Callable[[AnyArray], AnyArray]) -> Kernel:
    def compute(call: Call, x: AnyArray) -> AnyArray:
        return function(x.astype(call.dtype, copy=False))

    return compute


for _node_type, _function in FUNCTIONS.items():
    kernel(_node_type)(_kernel_of(_function))


@kernel(NodeType.EXPFUSION)
def exp(call: Call, x: AnyArray) -> AnyArray:
    """Compute y = base^(shift + scale x)."""
    attrs, x = call.attrs, x.astype(call.dtype, copy=False)
    exponent: AnyArray = attrs.shift + attrs.scale * x
    return np.exp(exponent) if attrs.base == -1 else np.power(x.dtype.type(attrs.base), exponent)


@kernel(NodeType.CLIP)
def clip(call: Call, x: AnyArray) -> AnyArray:
    """Compute y = min(max(x, min), max)."""
    x, low, high = x.astype(call.dtype, copy=False), call.attrs.min, call.attrs.max
    if x.dtype.kind == "f":
        low, high = -np.inf if low is None else low, np.inf if high is None else high
    else:
        low, high = integer_bounds(call.inputs[0].data_type, low, high)
    return np.clip(x, x.dtype.type(low), x.dtype.type(high))


@kernel(NodeType.CAST)
def cast(call: Call, x: AnyArray, _: AnyArray) -> AnyArray:
    """Cast x to the output's type; numbers beyond an integer type become its nearest one, and NaN becomes 0."""
    dtype = call.outputs[0].numpy_dtype
    return to_integers(x, dtype) if x.dtype.kind == "f" and dtype.kind in "iu" else x.astype(dtype, copy=False)


def to_integers(x: AnyArray, dtype: AnyDType) -> AnyArray:
    """Truncate real numbers, and limit them to the range of an integer type."""
    x = np.trunc(x.astype(np.float64))
    limits = np.iinfo(dtype)
    # FLOAT64 may not represent the highest value, but the power of two after it.
    too_low, too_high = x < float(limits.min), x >= float(limits.max + 1)
    inside = np.where(too_low | too_high | np.isnan(x), 0, x).astype(dtype)
    return np.where(too_low, dtype.type(limits.min), np.where(too_high, dtype.type(limits.max), inside))
