"""Floats of several elements: overflowing sums, NaN, windows of padding, and elements that only move."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnrt_client.conformance.cases.values.trap import (
    EXACT,
    ROUNDED,
    SIGNED,
    Trap,
    empty_reduction,
    empty_reductions,
)
from nnrt_client.conformance.tolerance import Tolerance
from nnrt_hdi.enums import DataType, Format, NodeType, PadMode, ReduceMode

N = NodeType
NAN, INF = float("nan"), float("inf")
FLOATS = ("f2", "f4", "f8")
FAR_FROM_ZERO = Tolerance(
    "a mean near 4096 that FLOAT32 rounds is off by up to 2^-12, a mean of squares by more than the variance",
    {DataType.FLOAT32: 2.0**-12},
)


def traps() -> Iterator[Trap]:
    """Yield the traps of floating-point types."""
    yield from _softmax()
    yield from _norms()
    yield from _folds()
    yield from _moves()
    yield from _windows()
    yield from _conditions()


def _softmax() -> Iterator[Trap]:
    """Yield rows that overflow, underflow, are masked, or contain NaN; none may change the result of another row."""
    half, none, first = [0.5, 0.5], [NAN, NAN], [1.0, 0.0]
    rows = {
        "f4": (
            [[0, 0], [100, 100], [-200, -200], [1e30, -1e30], [-INF, 3], [-INF, -INF], [INF, 0], [NAN, 0]],
            [half, half, half, first, first[::-1], none, none, none],
        ),
        "f2": (
            [[0, 0], [60000, 60000], [-60000, -60000], [60000, -60000], [-INF, 3], [NAN, 0]],
            [half, half, half, first, first[::-1], none],
        ),
        "f8": (
            [[0, 0], [1000, 1000], [-1e4, -1e4], [1e300, -1e300], [-INF, 3], [NAN, 0]],
            [half, half, half, first, first[::-1], none],
        ),
    }
    for dtype, (given, right) in rows.items():
        x, y = np.array(given, dtype), np.array(right, dtype)
        yield Trap("extreme", N.SOFTMAX, [[x]], [[y]], {"axis": (1,)}, tolerance=ROUNDED)
        turned, wanted = np.ascontiguousarray(x.T), np.ascontiguousarray(y.T)
        yield Trap("extreme_columns", N.SOFTMAX, [[turned]], [[wanted]], {"axis": (0,)}, tolerance=ROUNDED)
    log = np.array([[0, -1000], [-1000, 0]], "f4")
    yield Trap(
        "extreme",
        N.LOG_SOFTMAX,
        [[np.array([[500, -500], [-1500, -500]], "f4")]],
        [[log]],
        {"axis": 1},
        tolerance=ROUNDED,
    )


def _norms() -> Iterator[Trap]:
    """Yield small differences far from zero, which the mean of squares cancels, and rows of zeros."""
    steps = np.array([-1.5, -0.5, 0.5, 1.5])
    right = (steps / 1.25**0.5).astype("f4")
    for offset in (0, 1000, 4096):
        row = (offset + steps).astype("f4")
        ones, zeros = np.ones(4, "f4"), np.zeros(4, "f4")
        yield Trap(
            f"offset_{offset}",
            N.LAYER_NORM_FUSION,
            [[np.stack([row, row]), ones, zeros]],
            [[np.stack([right, right])]],
            {"epsilon": 0.0, "begin_norm_axis": 1},
            tolerance=FAR_FROM_ZERO,
        )
        image = row.reshape(1, 2, 2, 1)
        yield Trap(
            f"offset_{offset}",
            N.INSTANCE_NORM,
            [[image, ones[:1], zeros[:1]]],
            [[right.reshape(1, 2, 2, 1)]],
            {"epsilon": 0.0},
            tolerance=FAR_FROM_ZERO,
            layout=Format.NHWC,
        )
    zeros, axis = np.zeros((2, 3), "f4"), {"axis": (1,)}
    yield Trap("of_zeros", N.L2_NORMALIZE_FUSION, [[zeros]], [[zeros]], axis)
    yield Trap(
        "of_zeros",
        N.LAYER_NORM_FUSION,
        [[zeros, np.ones(3, "f4"), np.full(3, 0.5, "f4")]],
        [[np.full((2, 3), 0.5, "f4")]],
        {"epsilon": 2.0**-20},
    )
    yield Trap(
        "small_variance",
        N.FUSED_BATCH_NORM,
        [[np.array([[1, 2], [3, 4]], "f4"), *(np.array(v, "f4") for v in ([1, 2], [0, 1], [1, 2], [0, 0]))]],
        None,
        {"epsilon": 2.0**-14},
        tolerance=ROUNDED,
    )


def _folds() -> Iterator[Trap]:
    axis = np.array([1], "i4")
    for dtype in FLOATS:
        yield from empty_reductions(dtype, mean=NAN, lowest=-INF, highest=INF)
        yield empty_reduction(dtype, ReduceMode.L2, 0)
        x = np.array([[INF, -INF, 0], [INF, 1, 2], [-3, -2, -1]], dtype)
        for mode, wanted in (
            (ReduceMode.MAX, [INF, INF, -1]),
            (ReduceMode.MIN, [-INF, 1, -3]),
            (ReduceMode.SUM, [NAN, INF, -6]),
            (ReduceMode.ALL, [0, 1, 1]),
        ):
            yield Trap(
                f"{mode.name}-special", N.REDUCE_FUSION, [[x, axis]], [[np.array(wanted, dtype)]], {"mode": mode}, (1,)
            )
        yield Trap(
            "special", N.ALL, [[np.array([[NAN, 1], [-0.0, 1]], dtype), axis]], [[np.array([True, False])]], {}, (1,)
        )
        to_end = {"mode": ReduceMode.SUM, "coeff": 0.5, "reduce_to_end": True}
        pairs, front = np.array([[1, 2], [3, 4]], dtype), np.array([0], "i4")
        yield Trap("coeff", N.REDUCE_FUSION, [[pairs, front]], [[np.array(5, dtype)]], to_end, (1,))
        yield Trap(
            "coeff_not_to_end",
            N.REDUCE_FUSION,
            [[pairs, front]],
            [[np.array([4, 6], dtype)]],
            {"mode": ReduceMode.SUM, "coeff": 0.5},
            (1,),
        )
        yield Trap(
            "of_nothing",
            N.MATMUL_FUSION,
            [[np.ones((2, 0), dtype), np.ones((0, 3), dtype)]],
            [[np.zeros((2, 3), dtype)]],
        )


def _moves() -> Iterator[Trap]:
    """Yield arbitrary elements that are only moved and must keep every significant bit."""
    for dtype in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", *FLOATS):
        x = _extremes(dtype)
        for node_type, rest, attrs in (
            (N.RESHAPE, [np.array([3, 2])], {}),
            (N.TRANSPOSE, [np.array([1, 0])], {}),
            (N.CONCAT, [x[:1]], {}),
            (N.STACK, [x], {}),
            (N.TILE_FUSION, [np.array([2, 2])], {}),
            (N.BROADCAST_TO, [], {"shape": (2, 2, 3)}),
            (N.GATHER, [np.array([2, 0], "i4"), np.array([1])], {}),
            (N.GATHER_ND, [np.array([[1, 2], [0, 1]], "i4")], {}),
            (N.SLICE_FUSION, [np.array([0, 1]), np.array([2, 2])], {}),
            (N.STRIDED_SLICE, [np.array([1, 2]), np.array([-9, -9]), np.array([-1, -1])], {}),
            (N.EXPAND_DIMS, [np.array([1])], {}),
            (N.UNSQUEEZE, [], {"axis": (0,)}),
            (N.FLATTEN, [], {}),
            (N.SPLIT, [], {"axis": 1, "output_num": 3}),
            (N.UNSTACK, [], {"axis": 1}),
        ):
            few = node_type in (N.STACK, N.CONCAT, N.UNSQUEEZE, N.EXPAND_DIMS, N.BROADCAST_TO)
            constants = () if few else tuple(range(1, 1 + len(rest)))
            constants = (1,) if node_type is N.EXPAND_DIMS else constants
            yield Trap("extremes", node_type, [[x, *rest]], None, attrs, constants, tolerance=SIGNED)


def _extremes(dtype: str) -> Any:
    if dtype == "?":
        return np.array([[True, False, True], [False, False, True]])
    if dtype[0] == "f":
        info = np.finfo(dtype)
        return np.array([[NAN, INF, -INF], [-0.0, info.max, info.min]], dtype)
    limits = np.iinfo(dtype)
    return np.array([[limits.min, limits.max, 0], [1, limits.max - 1, limits.min + 1]], dtype)


def _windows() -> Iterator[Trap]:
    """Yield windows that contain only padding, and gaps between windows."""
    for dtype in ("f4", "f8"):
        none = np.ones((1, 0, 3, 1), dtype)
        attrs = {"kernel_size": (3, 1), "pad": (2, 2, 0, 0)}
        yield Trap(
            "padding_alone",
            N.MAX_POOL_FUSION,
            [[none]],
            [[np.full((1, 2, 3, 1), -INF, dtype)]],
            attrs,
            layout=Format.NHWC,
            ends_processes=True,
        )
        negative = np.full((1, 2, 2, 1), -5, dtype)
        padded = {"kernel_size": (2, 2), "strides": (2, 2), "pad": (1, 1, 1, 1)}
        for node_type in (N.MAX_POOL_FUSION, N.AVGPOOL_FUSION):
            yield Trap("padding_counts_nothing", node_type, [[negative]], [[negative]], padded, layout=Format.NHWC)
    row = np.arange(1, 6, dtype="f4").reshape(1, 1, 5, 1)
    for node_type in (N.MAX_POOL_FUSION, N.AVGPOOL_FUSION):
        yield Trap(
            "gaps",
            node_type,
            [[row]],
            [[np.array([1, 3, 5], "f4").reshape(1, 1, 3, 1)]],
            {"kernel_size": (1, 1), "strides": (1, 2), "pad_mode": PadMode.SAME},
            layout=Format.NHWC,
        )
    ones, bias = np.ones((1, 1, 1, 1), "f4"), np.array([10], "f4")
    yield Trap(
        "gaps",
        N.CONV2D_FUSION,
        [[row, ones, bias]],
        [[np.array([11, 14], "f4").reshape(1, 1, 2, 1)]],
        {"stride": (1, 3), "pad_mode": PadMode.SAME},
        (1, 2),
        Format.NHWC,
    )
    yield Trap(
        "gaps",
        N.CONV2D_TRANSPOSE_FUSION,
        [[row[:, :, :2], ones, bias]],
        [[np.array([11, 10, 12, 10], "f4").reshape(1, 1, 4, 1)]],
        {"stride": (1, 2), "pad_mode": PadMode.SAME},
        (1, 2),
        Format.NHWC,
    )
    yield Trap(
        "output_padding",
        N.CONV2D_TRANSPOSE_FUSION,
        [[row[:, :, :2], np.ones((1, 1, 3, 1), "f4"), np.zeros(1, "f4")]],
        [[np.array([1, 1, 3, 2, 2], "f4").reshape(1, 1, 5, 1)]],
        {"stride": (1, 2), "output_paddings": (0, 1), "pad_mode": PadMode.SAME},
        (1, 2),
        Format.NHWC,
    )
    # A weight of 0 times NaN is NaN, in every window that contains the pixel.
    image = np.zeros((1, 3, 3, 1), "f4")
    image[0, 0, 0, 0] = NAN
    yield Trap(
        "no_number",
        N.CONV2D_FUSION,
        [[image, np.zeros((1, 2, 2, 1), "f4"), np.zeros(1, "f4")]],
        [[np.array([NAN, 0, 0, 0], "f4").reshape(1, 2, 2, 1)]],
        {},
        (1, 2),
        Format.NHWC,
    )


def _conditions() -> Iterator[Trap]:
    numbers = np.array([0, -0.0, 0.5, NAN, -INF], "f4")
    a, b = np.arange(5, dtype="f4"), np.arange(10, 15, dtype="f4")
    right = np.array([10, 11, 2, 3, 4], "f4")
    for node_type in (N.WHERE, N.SELECT):
        yield Trap("number", node_type, [[numbers, a, b]], [[right]])
        dull = np.array([NAN, INF], "f4")
        yield Trap(
            "no_number",
            node_type,
            [[np.array([False, True]), dull, np.ones(2, "f4")]],
            [[np.array([1, INF], "f4")]],
            tolerance=EXACT,
        )
    for left, other, sign, wanted in (("i1", "u1", N.LESS, True), ("i1", "u1", N.GREATER, False)):
        yield Trap("two_types", sign, [[np.array([-1], left), np.array([1], other)]], [[np.array([wanted])]])
    yield Trap("two_types", N.GREATER, [[np.array([2**24 + 1], "i4"), np.array([2.0**24], "f4")]], [[np.array([True])]])
