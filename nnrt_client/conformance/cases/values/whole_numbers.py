"""Integers at the limits of their types: wrap-around, division by 0, and numbers that no float represents."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnrt_client.conformance.cases.values.trap import EXACT, Trap, elementwise, empty_reductions
from nnrt_hdi.enums import ActivationType, NodeType, ReduceMode

N = NodeType
SIGNED = ("i1", "i2", "i4", "i8")
UNSIGNED = ("u1", "u2", "u4", "u8")
INTEGERS = SIGNED + UNSIGNED


def traps() -> Iterator[Trap]:
    """Yield the traps of integers."""
    for dtype in SIGNED:
        yield from _signed(dtype, int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    for dtype in UNSIGNED:
        yield from _unsigned(dtype, int(np.iinfo(dtype).max))
    for dtype in INTEGERS:
        yield from _wrapping(dtype)
    yield from _large()
    yield from _powers()
    yield from _folds()
    yield from _products()
    yield from _bounds()


def _signed(dtype: str, low: int, high: int) -> Iterator[Trap]:
    only = (dtype,)
    a, b = [7, -7, 7, -7, 5, -5, 0, low], [2, 2, -2, -2, 0, 0, 0, -1]
    for node_type in (N.DIV_FUSION, N.REAL_DIV):
        yield from elementwise(
            "zero_divisor", node_type, [a, b], [3, -3, -3, 3, 0, 0, 0, low], only, ends_processes=True
        )
    a, b = [7, -7, 7, -7, 5, 0, low, high], [3, 3, -3, -3, 0, 0, -1, -1]
    yield from elementwise("zero_divisor", N.MOD, [a, b], [1, -1, 1, -1, 0, 0, 0, 0], only, ends_processes=True)
    x = [low, -1, 0, high]
    yield from elementwise("lowest", N.NEG, [x], [low, 1, 0, -high], only)
    yield from elementwise("lowest", N.ABS, [x], [low, 1, 0, high], only)
    yield from elementwise("wraps", N.SQUARE, [x], [0, 1, 0, 1], only)
    yield from elementwise("stays", N.ROUND, [x], x, only)
    for kind, right in (
        (ActivationType.RELU, [0, 0, 0, high]),
        (ActivationType.RELU6, [0, 0, 0, 6]),
        (ActivationType.RELU1, [-1, -1, 0, 1]),
        (ActivationType.ABS, [low, 1, 0, high]),
    ):
        yield from elementwise(f"{kind.name}_at_edges", N.ACTIVATION, [x], right, only, {"activation_type": kind})
    a, b = [low, high, low, -1], [high, low, low, 0]
    yield from elementwise("edges", N.MAXIMUM, [a, b], [high, high, low, 0], only)
    yield from elementwise("edges", N.MINIMUM, [a, b], [low, low, low, -1], only)
    for node_type, wanted in (
        (N.LESS, [1, 0, 0, 1]),
        (N.LESS_EQUAL, [1, 0, 1, 1]),
        (N.GREATER, [0, 1, 0, 0]),
        (N.GREATER_EQUAL, [0, 1, 1, 0]),
        (N.EQUAL, [0, 0, 1, 0]),
        (N.NOT_EQUAL, [1, 1, 0, 1]),
    ):
        yield from elementwise("edges", node_type, [a, b], wanted, only, result="?")


def _unsigned(dtype: str, high: int) -> Iterator[Trap]:
    only = (dtype,)
    for node_type in (N.DIV_FUSION, N.REAL_DIV):
        yield from elementwise(
            "zero_divisor",
            node_type,
            [[7, high, 5, 0, high], [2, high, 0, 0, 1]],
            [3, 1, 0, 0, high],
            only,
            ends_processes=True,
        )
    yield from elementwise(
        "zero_divisor", N.MOD, [[7, high, 5, 0], [4, high - 1, 0, 0]], [3, 1, 0, 0], only, ends_processes=True
    )
    yield from elementwise("wraps", N.NEG, [[0, 1, high]], [0, high, 1], only)
    yield from elementwise("stays", N.ABS, [[0, 1, high]], [0, 1, high], only)
    yield from elementwise("wraps", N.SQUARE, [[0, 1, high]], [0, 1, 1], only)
    a, b = [high, 0, high // 2 + 1, 3], [0, high, high // 2, 3]
    yield from elementwise("edges", N.MAXIMUM, [a, b], [high, high, high // 2 + 1, 3], only)
    yield from elementwise("edges", N.MINIMUM, [a, b], [0, 0, high // 2, 3], only)
    for node_type, wanted in (
        (N.LESS, [0, 1, 0, 0]),
        (N.LESS_EQUAL, [0, 1, 0, 1]),
        (N.GREATER, [1, 0, 1, 0]),
        (N.GREATER_EQUAL, [1, 0, 1, 1]),
        (N.EQUAL, [0, 0, 0, 1]),
    ):
        yield from elementwise("edges", node_type, [a, b], wanted, only, result="?")


def _wrapping(dtype: str) -> Iterator[Trap]:
    """Yield traps of wrap-around; the oracles compute in 64 bits and keep the low bits."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    a, b = [high, low, high, high // 2 + 1, 3], [1, high, high, high // 2 + 1, high - 1]
    for node_type in (N.ADD_FUSION, N.SUB_FUSION, N.MUL_FUSION, N.SQUARED_DIFFERENCE):
        yield from elementwise("wraps", node_type, [a, b], None, (dtype,))
    for node_type, wanted in ((N.ADD_FUSION, [0, 6, 6]), (N.SUB_FUSION, [6, 0, 0]), (N.MUL_FUSION, [0, 0, 6])):
        # The activation applies after the wrap-around.
        given = {
            N.ADD_FUSION: [[high, 5, high - 7], [1, 4, 7]],
            N.SUB_FUSION: [[9, 3, 0], [2, 3, 0]],
            N.MUL_FUSION: [[high // 2 + 1, 0, 5], [2, 7, 3]],
        }[node_type]
        if dtype[0] == "u" or node_type is not N.MUL_FUSION:
            right = [0 if node_type is N.ADD_FUSION else wanted[0], *wanted[1:]]
            yield from elementwise(
                "relu6", node_type, given, right, (dtype,), {"activation_type": ActivationType.RELU6}
            )


def _large() -> Iterator[Trap]:
    """Yield neighbours that FLOAT32 (2^24) or FLOAT64 (2^53) can't distinguish, and numbers beyond 32 bits."""
    for dtype, number in (("i4", 2**24), ("u4", 2**31), ("i8", 2**31), ("i8", 2**53), ("i8", 2**62), ("u8", 2**63)):
        a, b = [number + 1, number, number + 1], [number, number + 1, number + 1]
        title = f"above_2^{number.bit_length() - 1}"
        for node_type, wanted in (
            (N.EQUAL, [0, 0, 1]),
            (N.NOT_EQUAL, [1, 1, 0]),
            (N.LESS, [0, 1, 0]),
            (N.LESS_EQUAL, [0, 1, 1]),
            (N.GREATER, [1, 0, 0]),
            (N.GREATER_EQUAL, [1, 0, 1]),
        ):
            yield from elementwise(title, node_type, [a, b], wanted, (dtype,), result="?")
        yield from elementwise(title, N.MAXIMUM, [a, b], [number + 1] * 3, (dtype,))
        yield from elementwise(title, N.MINIMUM, [a, b], [number, number, number + 1], (dtype,))
        below_zero = -1 if dtype in SIGNED else int(np.iinfo(dtype).max)
        yield from elementwise(title, N.SUB_FUSION, [a, b], [1, below_zero, 0], (dtype,))
        yield from elementwise(title, N.ADD_FUSION, [a, [1, 2, 0]], [number + 2, number + 2, number + 1], (dtype,))
        yield from elementwise(title, N.DIV_FUSION, [a, [1, 1, 2]], [number + 1, number, number // 2], (dtype,))
        yield from elementwise(title, N.MOD, [a, [2, 2, 4]], [1, 0, 1], (dtype,))
        yield from elementwise(title, N.ABS, [a], a, (dtype,))
        yield from elementwise(title, N.CLIP, [a], a, (dtype,), {"min": 0.0})
        vector = np.array([0, number, number + 1, number - 1], dtype)
        axis, count = np.array([0], "i4"), np.array([2], "i4")
        yield Trap(title, N.TOPK_FUSION, [[vector, count]], [[vector[[2, 1]], np.array([2, 1], "i4")]], constants=(1,))
        yield Trap(title, N.ARGMAX_FUSION, [[vector]], [[np.array(2, "i4")]])
        yield Trap(f"{title}-value", N.ARGMAX_FUSION, [[vector]], [[vector[2]]], {"out_max_value": True})
        for mode, right in ((ReduceMode.MAX, number + 1), (ReduceMode.MIN, 0)):
            yield Trap(
                f"{mode.name}-{title}",
                N.REDUCE_FUSION,
                [[vector, axis]],
                [[np.array(right, dtype)]],
                {"mode": mode},
                (1,),
            )
        pair = np.array([number - 1, 2], dtype)
        yield Trap(
            f"SUM-{title}",
            N.REDUCE_FUSION,
            [[pair, axis]],
            [[np.array(number + 1, dtype)]],
            {"mode": ReduceMode.SUM},
            (1,),
        )
        condition = np.array([True, False, True])
        yield Trap(
            title, N.WHERE, [[condition, np.array(a, dtype), np.array(b, dtype)]], [[np.full(3, number + 1, dtype)]]
        )
        yield Trap(
            title, N.SELECT, [[condition, np.array(a, dtype), np.array(b, dtype)]], [[np.full(3, number + 1, dtype)]]
        )
        yield Trap(
            title,
            N.ONE_HOT,
            [[np.array([1, 0], "i4"), np.array([2], "i4"), np.array([number + 1], dtype), np.array([number], dtype)]],
            [[np.array([[number, number + 1], [number + 1, number]], dtype)]],
            constants=(1,),
        )
        yield Trap(
            title,
            N.FILL,
            [[np.array([number + 1], dtype), np.array([3], "i4")]],
            [[np.full(3, number + 1, dtype)]],
            constants=(1,),
        )
        places = np.array([[0], [1], [0]], "i4")
        yield Trap(
            title,
            N.SCATTER_ND,
            [[places, np.array([number - 1, number + 1, 2], dtype), np.array([3], "i4")]],
            [[np.array([number + 1, number + 1, 0], dtype)]],
            constants=(0, 2),
        )


def _powers() -> Iterator[Trap]:
    x, y = [3, -3, 2, -2, 1, -1, -1, 0, 0, 5], [4, 3, -1, -2, -3, -3, -4, -1, 0, 0]
    yield from elementwise(
        "signs", N.POW_FUSION, [x, y], [81, -27, 0, 0, 1, -1, 1, 0, 1, 1], SIGNED, ends_processes=True
    )
    for dtype, base, exponent, right in (
        ("i8", 3, 39, 4052555153018976267),
        ("u8", 3, 40, 12157665459056928801),
        ("i1", 3, 5, 243 - 256),
        ("i4", 2, -(2**31), 0),
    ):
        yield from elementwise(f"exact_{base}^{exponent}", N.POW_FUSION, [[base], [exponent]], [right], (dtype,))


def _folds() -> Iterator[Trap]:
    """Yield reductions of integers: of no elements, to results beyond the type, and to means, rounded towards zero."""
    axis = np.array([1], "i4")
    for dtype in INTEGERS:
        limits = np.iinfo(dtype)
        yield from empty_reductions(dtype, mean=0, lowest=limits.min, highest=limits.max)
        high = limits.max
        edge = np.array([[high, 1], [high, high]], dtype)
        sums = [limits.min, -2 if dtype in SIGNED else high - 1]
        for mode, results in (
            (ReduceMode.SUM, sums),
            (ReduceMode.PROD, [high, 1]),
            (ReduceMode.SUM_SQUARE, [2, 2]),
        ):
            yield Trap(
                f"{mode.name}-wraps",
                N.REDUCE_FUSION,
                [[edge, axis]],
                [[np.array(results, dtype)]],
                {"mode": mode},
                (1,),
            )
    signed = np.array([[1, 2], [-1, -2], [-3, -4]], "i4")
    for dtype in SIGNED:
        yield Trap(
            "MEAN-towards_zero",
            N.REDUCE_FUSION,
            [[signed.astype(dtype), axis]],
            [[np.array([1, -1, -3], dtype)]],
            {},
            (1,),
        )
    for dtype in INTEGERS:
        low = int(np.iinfo(dtype).min)
        x = np.array([[low, 1], [1, 1], [0, 1]], dtype)
        yield Trap(
            "ALL-edges",
            N.REDUCE_FUSION,
            [[x, axis]],
            [[np.array([low != 0, 1, 0], dtype)]],
            {"mode": ReduceMode.ALL},
            (1,),
        )
        yield Trap("edges", N.ALL, [[x, axis]], [[np.array([low != 0, True, False])]], {}, (1,))


def _products() -> Iterator[Trap]:
    for dtype in INTEGERS:
        high = int(np.iinfo(dtype).max)
        a, b = np.array([[high, 2], [1, high]], dtype), np.array([[2, 1], [high, 3]], dtype)
        yield Trap("wraps", N.MATMUL_FUSION, [[a, b]])
        yield Trap(
            "of_nothing",
            N.MATMUL_FUSION,
            [[np.ones((2, 0), dtype), np.ones((0, 3), dtype)]],
            [[np.zeros((2, 3), dtype)]],
        )


def _bounds() -> Iterator[Trap]:
    rows: list[tuple[str, list[int], dict[str, float], list[int]]] = [
        ("i1", [-128, 0, 127], {"min": -1.5, "max": 1.5}, [-1, 0, 1]),
        ("i1", [-128, 0, 127], {"min": -300.0, "max": 300.0}, [-128, 0, 127]),
        ("u1", [0, 7, 255], {"min": -1.0, "max": 7.0}, [0, 7, 7]),
        ("i4", [-(2**31), 2**31 - 1], {"max": 2.0**31}, [-(2**31), 2**31 - 1]),
        ("i8", [2**62 + 1, 2**63 - 1], {"min": float("-inf"), "max": float("inf")}, [2**62 + 1, 2**63 - 1]),
        ("u8", [2**63 + 1, 2**64 - 1], {"min": 0.0, "max": 2.0**64}, [2**63 + 1, 2**64 - 1]),
        ("i4", [0, 9], {"min": 5.0, "max": 3.0}, [3, 3]),
    ]
    for number, (dtype, given, bounds, right) in enumerate(rows):
        yield from elementwise(f"bounds_{number}", N.CLIP, [given], right, (dtype,), bounds)
    low, high = -(2**63), 2**63 - 1
    ranges: list[tuple[int, int, int, str, list[Any]]] = [
        (high - 2, high, 1, "i8", [high - 2, high - 1]),
        (low, high, high, "i8", [low, -1, high - 1]),
        (high, low, low, "i8", [high, -1]),
        (0, high, 2**62, "u8", [0, 2**62]),
        (-128, 128, 127, "i1", [-128, -1, 126]),
        (255, -1, -255, "u1", [255, 0]),
        (2048, 2051, 1, "f2", [2048, 2048, 2050]),
        (5, 5, 1, "i4", []),
        (5, 9, -1, "i4", []),
    ]
    for number, (start, limit, delta, dtype, right) in enumerate(ranges):
        yield Trap(
            f"edges_{number}",
            N.RANGE,
            [[np.zeros((), dtype)]],
            [[np.array(right, dtype)]],
            {"start": start, "limit": limit, "delta": delta},
            tolerance=EXACT,
        )
