"""Functions of one operand, element by element."""

import numpy as np

from nnrt_backend_reference.kernels.kernel import AnyArray, AnyDType, Call, kernel
from nnrt_hdi.enums import NodeType


@kernel(NodeType.CAST)
def cast(call: Call, x: AnyArray, _: AnyArray) -> AnyArray:
    """y = x in the type of the output; what is beyond an integer type becomes its nearest, not-a-number 0."""
    dtype = call.outputs[0].numpy_dtype
    return to_integers(x, dtype) if x.dtype.kind == "f" and dtype.kind in "iu" else x.astype(dtype, copy=False)


def to_integers(x: AnyArray, dtype: AnyDType) -> AnyArray:
    """Real numbers without their fraction, kept inside the range of an integer type."""
    x = np.trunc(x.astype(np.float64))
    limits = np.iinfo(dtype)
    # The highest value need not be a FLOAT64, but the power of two behind it is.
    too_low, too_high = x < float(limits.min), x >= float(limits.max + 1)
    inside = np.where(too_low | too_high | np.isnan(x), 0, x).astype(dtype)
    return np.where(too_low, dtype.type(limits.min), np.where(too_high, dtype.type(limits.max), inside))
