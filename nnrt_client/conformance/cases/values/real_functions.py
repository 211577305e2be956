"""Elementwise functions of floats: special values, extremes, rounding ties, casts, and bounds."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnrt_client.conformance.cases.values.trap import (
    ROUNDED,
    SIGNED,
    Trap,
    elementwise,
)
from nnrt_hdi.enums import ActivationType, EltwiseMode, NodeType

N = NodeType
NAN, INF = float("nan"), float("inf")
FLOATS = ("f2", "f4", "f8")

# Functions of one element: inputs and outputs. Inexact functions are exact at these inputs.
SPECIAL: dict[NodeType, tuple[list[float], list[float]]] = {
    N.SQRT: ([4, 0, -0.0, -1, INF, NAN], [2, 0, -0.0, NAN, INF, NAN]),
    N.RSQRT: ([4, 0, -1, INF, NAN], [0.5, INF, NAN, 0, NAN]),
    N.SQUARE: ([-3, -0.0, -INF, NAN], [9, 0, INF, NAN]),
    N.ERF: ([0, -0.0, INF, -INF, NAN], [0, -0.0, 1, -1, NAN]),
    N.LOG: ([1, 0, -0.0, -1, INF, NAN], [0, -INF, -INF, NAN, INF, NAN]),
    N.SIN: ([0, -0.0, INF, NAN], [0, -0.0, NAN, NAN]),
    N.COS: ([0, -0.0, INF, NAN], [1, 1, NAN, NAN]),
    N.CEIL: ([1.5, -1.5, -0.5, 0, INF, NAN], [2, -1, -0.0, 0, INF, NAN]),
    N.FLOOR: ([1.5, -1.5, 0.5, -0.0, -INF, NAN], [1, -2, 0, -0.0, -INF, NAN]),
    N.ROUND: ([0.5, 1.5, 2.5, -0.5, -1.5, 1.25, INF, NAN], [0, 2, 2, -0.0, -2, 1, INF, NAN]),
    N.NEG: ([1, 0, -0.0, -INF, NAN], [-1, -0.0, 0, INF, NAN]),
    N.ABS: ([-1, -0.0, -INF, NAN], [1, 0, INF, NAN]),
    N.RECIPROCAL: ([4, 0, -0.0, -INF, NAN], [0.25, INF, -INF, -0.0, NAN]),
    N.EXPFUSION: ([0, -0.0, INF, -INF, NAN, 1e4], [1, 1, INF, 0, NAN, INF]),
}
# Functions of two elements: both inputs, and the outputs.
PAIRS: dict[NodeType, tuple[list[float], list[float], list[float]]] = {
    N.DIV_FUSION: ([1, -1, 0, INF, INF, 3], [0, 0, 0, INF, -2, INF], [INF, -INF, NAN, NAN, -INF, 0]),
    N.REAL_DIV: ([1, -1, 0, INF, INF, 3], [0, 0, 0, INF, -2, INF], [INF, -INF, NAN, NAN, -INF, 0]),
    N.ADD_FUSION: ([INF, INF, NAN, 0], [-INF, 1, 1, -0.0], [NAN, INF, NAN, 0]),
    N.SUB_FUSION: ([INF, INF, NAN, -INF], [INF, 1, 1, 5], [NAN, INF, NAN, -INF]),
    N.MUL_FUSION: ([0, INF, NAN, -INF], [INF, -2, 0, -1], [NAN, -INF, NAN, INF]),
    N.MOD: ([5.5, -5.5, 5.5, 1, INF, 3, NAN], [2, 2, -2, 0, 2, INF, 1], [1.5, -1.5, 1.5, NAN, NAN, 3, NAN]),
    N.MAXIMUM: ([NAN, 1, INF, 0, NAN], [1, NAN, -INF, -1, NAN], [NAN, NAN, INF, 0, NAN]),
    N.MINIMUM: ([NAN, 1, INF, 0, NAN], [1, NAN, -INF, -1, NAN], [NAN, NAN, -INF, -1, NAN]),
    N.POW_FUSION: (
        [-8, -8, 0, 0, -0.0, NAN, 2, INF, 0.5, -2],
        [2, 0.5, 0, -1, -1, 0, -INF, -1, INF, 3],
        [64, NAN, 1, INF, -INF, 1, 0, 0, 0, -8],
    ),
    N.SQUARED_DIFFERENCE: ([INF, 3, NAN], [1, 5, NAN], [INF, 4, NAN]),
}
COMPARED = ([NAN, 1, 0, INF, -INF, 2], [NAN, NAN, -0.0, INF, INF, 1])
COMPARISONS = {
    N.EQUAL: [0, 0, 1, 1, 0, 0],
    N.NOT_EQUAL: [1, 1, 0, 0, 1, 1],
    N.GREATER: [0, 0, 0, 0, 0, 1],
    N.GREATER_EQUAL: [0, 0, 1, 1, 0, 1],
    N.LESS: [0, 0, 0, 0, 1, 0],
    N.LESS_EQUAL: [0, 0, 1, 1, 1, 0],
    N.LOGICAL_AND: [1, 1, 0, 1, 1, 1],
    N.LOGICAL_OR: [1, 1, 0, 1, 1, 1],
}
# Activations of infinities, NaN and numbers far from zero: inputs and outputs.
ENDS: dict[ActivationType, tuple[list[float], list[float]]] = {
    ActivationType.RELU: ([-INF, INF, NAN, -2], [0, INF, NAN, 0]),
    ActivationType.RELU6: ([-INF, INF, NAN, 5], [0, 6, NAN, 5]),
    ActivationType.RELU1: ([-INF, INF, NAN, -2], [-1, 1, NAN, -1]),
    ActivationType.ABS: ([-INF, INF, NAN, -2], [INF, INF, NAN, 2]),
    ActivationType.SIGMOID: ([-1e4, 1e4, 0, INF, -INF, NAN], [0, 1, 0.5, 1, 0, NAN]),
    ActivationType.SOFTPLUS: ([-1e4, 1e4, NAN], [0, 1e4, NAN]),
    ActivationType.TANH: ([-1e4, 1e4, 0, INF, NAN], [-1, 1, 0, 1, NAN]),
    ActivationType.SWISH: ([-1e4, 1e4, 0], [0, 1e4, 0]),
    ActivationType.GELU: ([-1e4, 1e4, 0], [0, 1e4, 0]),
    ActivationType.HSWISH: ([-1e4, 1e4, -3, 0], [0, 1e4, 0, 0]),
    ActivationType.HSIGMOID: ([-1e4, 1e4, -3, 0], [0, 1, 0, 0.5]),
    ActivationType.SIGN: ([-INF, INF, 0, -0.5], [-1, 1, 0, -1]),
}


def traps() -> Iterator[Trap]:
    """Yield the traps of elementwise functions."""
    for node_type, (given, right) in SPECIAL.items():
        yield from elementwise("special", node_type, [given], right, FLOATS, tolerance=SIGNED)
    for node_type, (a, b, right) in PAIRS.items():
        yield from elementwise("special", node_type, [a, b], right, FLOATS)
    a, b, right = PAIRS[N.MAXIMUM]
    yield from elementwise("special", N.ELTWISE, [a, b], right, FLOATS, {"mode": EltwiseMode.MAXIMUM})
    for node_type, truth in COMPARISONS.items():
        yield from elementwise("special", node_type, [*COMPARED], truth, FLOATS, result="?")
    yield from elementwise("special", N.LOGICAL_NOT, [[NAN, 0, -0.0, 1, INF]], [0, 1, 1, 0, 0], FLOATS, result="?")
    for kind, (given, right) in ENDS.items():
        attrs = {"activation_type": kind}
        yield from elementwise(f"{kind.name}_at_ends", N.ACTIVATION, [given], right, FLOATS, attrs)
    yield from elementwise(
        "special", N.LEAKY_RELU, [[NAN, INF, -INF, -2]], [NAN, INF, -INF, -0.5], FLOATS, {"negative_slope": 0.25}
    )
    yield from _rounding()
    yield from _casts()
    yield from _clips()


def _rounding() -> Iterator[Trap]:
    """Yield ties and their neighbours, and numbers too large to have a fraction."""
    ties = [0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5, -3.5, 1022.5, 1023.5]
    yield from elementwise("ties", N.ROUND, [ties], [0, 2, 2, 4, 0, -2, -2, -4, 1022, 1024], FLOATS)
    near = [float(np.nextafter(np.float32(0.5), np.float32(0))), 8388609, -8388609, 4194304.5, 16777216]
    yield from elementwise("near_ties", N.ROUND, [near], [0, 8388609, -8388609, 4194304, 16777216], ("f4",))
    yield from elementwise("large", N.FLOOR, [near], [0, 8388609, -8388609, 4194304, 16777216], ("f4",))
    yield from elementwise("large", N.CEIL, [near], [1, 8388609, -8388609, 4194305, 16777216], ("f4",))
    # FLOAT16 represents no number between 2048 and 2050, and none above 65504.
    a, b = [2048, 2048, 2050, 65504, -60000, 65504], [1, 3, 1, 1, -60000, 16]
    yield from elementwise("rounded", N.ADD_FUSION, [a, b], [2048, 2052, 2052, 65504, -INF, INF], ("f2",))
    yield from elementwise("rounded", N.MUL_FUSION, [[256, 2049, 0.5], [256, 1, 2.0**-24]], [INF, 2048, 0], ("f2",))
    yield from elementwise("rounded_once", N.RSQRT, [[17]], [0.24253562503633297], ("f2",))
    yield from elementwise("beyond", N.SQUARE, [[1e30, -1e-30, 3]], [INF, 0, 9], ("f4",))
    yield from elementwise(
        "no_single", N.ADD_FUSION, [[2.0**24, 1 + 2.0**-40], [1, 0]], [2.0**24 + 1, 1 + 2.0**-40], ("f8",)
    )
    yield from elementwise(
        "far",
        N.MUL_FUSION,
        [[1e200, 1e-200, 3], [1e100, 1e-100, 1e300]],
        [1e300, 1e-300, 3e300],
        ("f8",),
        tolerance=ROUNDED,
    )
    yield from elementwise("far", N.SIN, [[1e5, -1e6, 100]], None, ("f8",), tolerance=ROUNDED)
    yield from elementwise("far", N.EXPFUSION, [[80, -80, 1]], None, ("f4", "f8"), tolerance=ROUNDED)
    yield from elementwise(
        "powers_of_two", N.EXPFUSION, [[-2, 0, 3, 10]], [0.25, 1, 8, 1024], FLOATS, {"base": 2.0}, tolerance=ROUNDED
    )


def _casts() -> Iterator[Trap]:
    """Yield casts to data types by number, which lose a fraction, the high bits, or all but the truth value."""
    rows: list[tuple[str, list[Any], str, int, list[Any], str]] = [
        ("fraction", [1.9, -1.9, 0.99, -0.99, 126.7], "f4", 2, [1, -1, 0, 0, 126], "i1"),
        ("fraction", [1.9, -1.9, -128.9], "f2", 2, [1, -1, -128], "i1"),
        ("fraction", [1.9, -1.9, 2.0**40 + 0.5], "f8", 5, [1, -1, 2**40], "i8"),
        ("fraction", [254.9, 0.5], "f8", 6, [254, 0], "u1"),
        ("large", [2.0**31, 2.0**32 - 256], "f4", 8, [2**31, 2**32 - 256], "u4"),
        ("large", [2.0**63, 2.0**64 - 2**40], "f4", 9, [2**63, 2**64 - 2**40], "u8"),
        ("low_bits", [300, -1, 256, -129], "i4", 6, [44, 255, 0, 127], "u1"),
        ("low_bits", [300, -1, 128, -129], "i4", 2, [44, -1, -128, 127], "i1"),
        ("low_bits", [2**32 + 5, -1, 2**31], "i8", 4, [5, -1, -(2**31)], "i4"),
        ("low_bits", [2**63, 2**64 - 1], "u8", 5, [-(2**63), -1], "i8"),
        ("signs", [-1, -128, 127], "i1", 9, [2**64 - 1, 2**64 - 128, 127], "u8"),
        ("signs", [255, 128], "u1", 2, [-1, -128], "i1"),
        ("truth", [0, 0.5, NAN, -0.0, INF], "f4", 1, [False, True, True, False, True], "?"),
        ("truth", [0, 256, -1], "i4", 1, [False, True, True], "?"),
        ("truth", [2**32, 0], "i8", 1, [True, False], "?"),
        ("from_truth", [True, False], "?", 11, [1, 0], "f4"),
        ("from_truth", [True, False], "?", 5, [1, 0], "i8"),
        ("half", [1e6, 65519, 65520, -1e6, 2049, 2051], "f4", 10, [INF, 65504, INF, -INF, 2048, 2052], "f2"),
        ("small_half", [2.0**-24, 2.0**-25, 2.0**-14], "f4", 10, [2.0**-24, 0, 2.0**-14], "f2"),
        ("single", [1e300, 2.0**24 + 1, 0.1], "f8", 11, [INF, 2.0**24, np.float32(0.1)], "f4"),
        ("single", [2**24 + 1, 2**24 + 3, -(2**31)], "i4", 11, [2.0**24, 2.0**24 + 4, -(2.0**31)], "f4"),
        ("double", [2**53 + 1, -(2**63)], "i8", 12, [2.0**53, -(2.0**63)], "f8"),
        ("double", [2**64 - 1, 2**63], "u8", 12, [2.0**64, 2.0**63], "f8"),
        ("number_of_hdi", [7, -7], "i4", 43, [7, -7], "f4"),
    ]
    for title, given, dtype, number, right, result in rows:
        x, code = np.array(given, dtype), np.array(number, "i4")
        for suffix, count in (("", x.size), ("-long", 67)):
            yield Trap(
                f"{title}-to_{np.dtype(result).name}{suffix}",
                N.CAST,
                [[np.resize(x, count), code]],
                [[np.resize(np.array(right, result), count)]],
                constants=(1,),
            )


def _clips() -> Iterator[Trap]:
    given = [-INF, 0.5, INF, NAN]
    for number, (bounds, right) in enumerate(
        (
            ({"min": -1.0, "max": 1.0}, [-1, 0.5, 1, NAN]),
            ({"min": -1.0}, [-1, 0.5, INF, NAN]),
            ({"max": 1.0}, [-INF, 0.5, 1, NAN]),
            ({}, [-INF, 0.5, INF, NAN]),
            ({"min": 2.0, "max": 1.0}, [1, 1, 1, NAN]),
            ({"min": -INF, "max": INF}, [-INF, 0.5, INF, NAN]),
        )
    ):
        yield from elementwise(f"special_{number}", N.CLIP, [given], right, FLOATS, bounds)
