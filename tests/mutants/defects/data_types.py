"""Operators computed in the wrong data type: wrong overflow, sign or precision."""

from typing import Any

import numpy as np
from nnrt_backend_reference.kernels import elementwise, indexing, pieces, reduction
from nnrt_backend_reference.kernels.kernel import AnyArray, AnyDType, Call, Kernel

from mutants.defect import entry, function, kernel
from nnrt_hdi.enums import NodeType, ReduceMode
from nnrt_hdi.tensor import Shape


def _saturated(wide: AnyArray, dtype: AnyDType) -> AnyArray:
    limits = np.iinfo(dtype)
    return np.clip(wide, limits.min, limits.max).astype(dtype)


@kernel(NodeType.ADD_FUSION)
def small_sums_saturate(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """Sums of 8-bit integers saturate like those of quantized tensors."""
    if call.dtype.itemsize > 1 or call.dtype.kind not in "iu":
        return right(call, a, b)
    return _saturated(np.add(a, b, dtype=np.int64), call.dtype)


@kernel(NodeType.MUL_FUSION)
def products_saturate(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """Products of INT16 and INT32 saturate."""
    if call.dtype.itemsize not in (2, 4) or call.dtype.kind != "i":
        return right(call, a, b)
    return _saturated(np.multiply(a, b, dtype=np.int64), call.dtype)


@kernel(NodeType.ADD_FUSION, NodeType.SUB_FUSION, NodeType.MUL_FUSION)
def long_integers_through_float64(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """INT64 is computed in FLOAT64, which is exact to 53 bits only."""
    y = right(call, a, b)
    return np.asarray(y.astype(np.float64).astype(np.int64)) if y.dtype == np.int64 else np.asarray(y)


@function(pieces.product, NodeType.MATMUL_FUSION)
def integer_products_in_float32(right: Kernel, a: AnyArray, b: AnyArray) -> Any:
    """Matrix products of integers are computed in FLOAT32, which is exact to 24 bits only."""
    if a.dtype.kind not in "iu":
        return right(a, b)
    return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(np.int64).astype(a.dtype)


@entry(reduction.FOLDS, ReduceMode.SUM, ReduceMode.MEAN, node_types=(NodeType.REDUCE_FUSION,))
def integer_sums_in_float32(right: Kernel, x: AnyArray, axes: Shape) -> Any:
    """Sums of integers are computed in FLOAT32."""
    if x.dtype.kind not in "iu":
        return right(x, axes)
    return right(x.astype(np.float32).astype(np.int64), axes).astype(np.float32).astype(np.int64)


@entry(reduction.FOLDS, ReduceMode.SUM, node_types=(NodeType.REDUCE_FUSION,))
def sums_in_sixteen_bits(right: Kernel, x: AnyArray, axes: Shape) -> Any:
    """Sums of INT16 saturate."""
    y = right(x, axes)
    return _saturated(y, x.dtype) if x.dtype == np.int16 else y


@kernel(NodeType.LESS, NodeType.GREATER)
def unsigned_bytes_compared_as_signed(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """UINT8 is compared as INT8."""
    is_byte = a.dtype == b.dtype == np.uint8
    return right(call, a.view(np.int8), b.view(np.int8)) if is_byte else right(call, a, b)


@kernel(NodeType.MAXIMUM)
def largest_unsigned_as_negative(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """UINT32 and UINT64 are compared as signed."""
    if call.dtype.kind != "u" or call.dtype.itemsize < 4 or a.dtype != b.dtype:
        return right(call, a, b)
    signed = np.dtype(f"i{call.dtype.itemsize}")
    return np.maximum(a.view(signed), b.view(signed)).view(call.dtype)


@kernel(NodeType.EQUAL, NodeType.GREATER_EQUAL)
def long_integers_compared_in_float32(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """Integers are compared as FLOAT32, in which neighbours above 2^24 are equal."""
    is_integer = a.dtype.kind in "iu" and b.dtype.kind in "iu"
    return right(call, *((a.astype("f4"), b.astype("f4")) if is_integer else (a, b)))


@kernel(NodeType.CAST)
def unsigned_cast_as_signed(right: Kernel, call: Call, x: AnyArray, to: AnyArray) -> Any:
    """A cast reads UINT32 as INT32."""
    is_meant = x.dtype == np.uint32 and call.outputs[0].numpy_dtype.kind == "f"
    return right(call, x.view(np.int32) if is_meant else x, to)


@kernel(NodeType.CAST)
def truth_of_the_low_byte(right: Kernel, call: Call, x: AnyArray, to: AnyArray) -> Any:
    """A cast to BOOL reads the low byte of an integer: 256 is false."""
    is_meant = x.dtype.kind in "iu" and call.outputs[0].numpy_dtype.kind == "b"
    return right(call, x & 255 if is_meant and x.itemsize > 1 else x, to)


@kernel(NodeType.CAST)
def narrowing_saturates(right: Kernel, call: Call, x: AnyArray, to: AnyArray) -> Any:
    """A cast to a narrower integer type saturates instead of dropping the high bits."""
    dtype = call.outputs[0].numpy_dtype
    is_meant = x.dtype.kind in "iu" and dtype.kind in "iu" and dtype.itemsize < x.itemsize
    return _saturated(x, dtype) if is_meant else right(call, x, to)


@function(elementwise.to_integers, NodeType.CAST)
def reals_cast_by_way_of_int32(right: Kernel, x: AnyArray, dtype: AnyDType) -> Any:
    """A cast of real numbers to any integer type goes through INT32."""
    return right(x, np.dtype(np.int32)).astype(dtype)


@kernel(NodeType.ABS, NodeType.NEG)
def lowest_becomes_highest(right: Kernel, call: Call, x: AnyArray) -> Any:
    """The absolute value and the negative of the lowest integer are the highest."""
    y = right(call, x)
    return np.where(x == np.iinfo(x.dtype).min, np.iinfo(x.dtype).max, y) if x.dtype.kind == "i" else y


@kernel(NodeType.SQUARE)
def squares_in_float32(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Squares of integers are computed in FLOAT32."""
    return np.square(x.astype(np.float32)).astype(np.int64) if x.dtype.kind in "iu" else right(call, x)


@kernel(NodeType.ERF, NodeType.LOG, NodeType.SIN, NodeType.SQRT, NodeType.EXPFUSION, NodeType.ACTIVATION)
def doubles_are_singles(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Functions of one operand compute FLOAT64 in FLOAT32."""
    return right(call, x.astype(np.float32).astype(np.float64) if x.dtype == np.float64 else x).astype(
        np.float32 if x.dtype == np.float64 else call.dtype
    )


@function(indexing.largest, NodeType.TOPK_FUSION, NodeType.ARGMAX_FUSION)
def keys_sorted_as_float32(right: Kernel, x: AnyArray, count: int, axis: int) -> Any:
    """Integers are sorted as FLOAT32, in which large neighbours are equal."""
    return right(x.astype(np.float32) if x.dtype.kind in "iu" else x, count, axis)


@kernel(NodeType.GATHER, NodeType.TILE_FUSION, NodeType.CONCAT)
def eight_bytes_moved_as_four(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """The upper four bytes of elements of 8 bytes are lost."""
    y = np.array(right(call, *operands))
    if y.dtype.itemsize == 8:
        y.view(np.uint64)[...] &= np.uint64(0xFFFFFFFF)
    return y


@kernel(NodeType.RANGE, NodeType.FILL)
def made_through_float32(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """RANGE and FILL compute integers in FLOAT32."""
    y = right(call, *operands)
    return y.astype(np.float32).astype(np.int64) if y.dtype.kind == "i" else y


@kernel(NodeType.MOD)
def remainder_through_float64(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """Remainders of INT64 are computed in FLOAT64."""
    if call.dtype != np.int64:
        return right(call, a, b)
    return np.nan_to_num(np.fmod(a.astype(np.float64), b.astype(np.float64))).astype(np.int64)
