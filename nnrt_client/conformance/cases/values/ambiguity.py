"""Ambiguous shapes: with equal dimensions only the elements show whether a device interprets a node correctly."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from nnrt_client.conformance.case import Case
from nnrt_client.conformance.cases.values.trap import ROUNDED, Trap, elementwise
from nnrt_client.conformance.numbers import Numbers, f4, i4
from nnrt_hdi.enums import CoordinateTransformMode, Format, NearestMode, NodeType, ReduceMode, ResizeMethod

N = NodeType
NCHW = Format.NCHW
SQUARE: Any = np.array([[1, 2], [3, 4]], "f4")
OTHER: Any = np.array([[1, 5], [0, 2]], "f4")
CUBE: Any = np.arange(8, dtype="f4").reshape(2, 2, 2)
# One image with two channels, two pixels wide.
IMAGE: Any = np.array([[-1, -2], [-3, -4]], "f4").reshape(1, 2, 1, 2)


def traps() -> Iterator[Trap]:
    """Yield the traps of ambiguous shapes, and of state that a run may leave for the next one."""
    yield from _products()
    yield from _channels()
    yield from _axes()
    yield from _folds()
    yield from _numbers()
    yield from _several_runs()


def with_float16() -> Iterator[Case]:
    """Yield the cases of models that may compute in FLOAT16, with integers that FLOAT16 doesn't represent."""
    x = np.arange(2100, dtype="f4") % 7
    trap = Trap("beyond_2048", N.SLICE_FUSION, [[x, i4(2049), i4(3)]], [[x[2049:2052]]], constants=(1, 2))
    case = trap.case()
    yield replace(case, name=f"{case.name}-enabled", enable_float16=True)


def _products() -> Iterator[Trap]:
    yield Trap("square", N.FULL_CONNECTION, [[SQUARE, OTHER]], [[SQUARE @ OTHER.T]])
    yield Trap("square_constant", N.FULL_CONNECTION, [[SQUARE, OTHER]], [[SQUARE @ OTHER.T]], constants=(1,))
    for a, b in ((True, False), (False, True), (True, True)):
        right = (SQUARE.T if a else SQUARE) @ (OTHER.T if b else OTHER)
        attrs = {"transpose_a": a, "transpose_b": b}
        yield Trap(f"square_{a}_{b}", N.MATMUL_FUSION, [[SQUARE, OTHER]], [[right]], attrs)
        yield Trap(f"square_{a}_{b}_constant", N.MATMUL_FUSION, [[SQUARE, OTHER]], [[right]], attrs, (1,))
    six, bias = np.arange(1, 7, dtype="f4").reshape(1, 1, 1, 6), np.zeros(1, "f4")
    yield Trap("six_channels", N.CONV2D_FUSION, [[six, six, bias]], [[f4(91).reshape(1, 1, 1, 1)]], {}, (1, 2))


def _channels() -> Iterator[Trap]:
    """Yield traps in NCHW with as many channels as the image has columns."""
    by_channel = IMAGE * np.array([2, 10], "f4").reshape(1, 2, 1, 1)
    yield Trap("wide_as_channels", N.PRELU_FUSION, [[IMAGE, f4(2, 10)]], [[by_channel]], {}, (1,), NCHW)
    shifted = IMAGE + np.array([2, 10], "f4").reshape(1, 2, 1, 1)
    yield Trap("wide_as_channels", N.BIAS_ADD, [[IMAGE, f4(2, 10)]], [[shifted]], {}, (1,), NCHW)
    yield Trap(
        "square", N.SCALE_FUSION, [[SQUARE, f4(2, 10), f4(0, 100)]], [[f4([2, 4], [130, 140])]], {"axis": 0}, (1, 2)
    )
    for node_type, operands, shape in (
        (N.RESHAPE, [np.array([4], "i8")], (4,)),
        (N.FLATTEN, [], (1, 4)),
    ):
        image = np.arange(4, dtype="f4").reshape(1, 2, 1, 2)
        given = [[image, *operands]]
        constants = (1,) if operands else ()
        yield Trap("image", node_type, given, [[image.reshape(shape)]], {}, constants, NCHW)
    images = [np.zeros((batch, 2, 3, 4), "f4") for batch in (1, 5)]
    yield Trap("image", N.SHAPE, [[x] for x in images], [[i4(*x.shape)] for x in images], layout=NCHW)


def _axes() -> Iterator[Trap]:
    yield Trap("square", N.GATHER, [[SQUARE, i4(1, 0), i4(1)]], [[SQUARE[:, ::-1].copy()]], {}, (2,))
    yield Trap("square", N.UNSTACK, [[SQUARE]], [[f4(1, 3), f4(2, 4)]], {"axis": 1})
    yield Trap("square", N.BROADCAST_TO, [[f4(1, 2)]], [[f4([1, 2], [1, 2])]], {"shape": (2, 2)})
    yield Trap("square", N.SELECT, [[np.array([True, False]), SQUARE, OTHER]], [[f4([1, 2], [0, 2])]])
    pixels = np.arange(14, dtype="f4").reshape(1, 1, 14, 1)
    wider = {
        "method": ResizeMethod.NEAREST,
        "nearest_mode": NearestMode.FLOOR,
        "coordinate_transform_mode": CoordinateTransformMode.ASYMMETRIC,
        "new_height": 1,
        "new_width": 46,
    }
    yield Trap("46_of_14", N.RESIZE, [[pixels]], [[pixels[:, :, np.arange(46) * 14 // 46]]], wider)
    detected = {
        "scale": (10.0, 5.0, 5.0, 5.0),
        "num_classes": 1,
        "nms_score_threshold": 0.5,
        "nms_io_u_threshold": 0.5,
        "max_detections": 1,
    }
    given = [f4([[10, 0, 0, 0]]), f4([[0.75]]), f4([0, 0, 1, 1])]
    found = [f4([[0.5, -0.5, 1.5, 0.5]]), f4([0]), f4([0.75]), f4(1)]
    yield Trap("one_box", N.DETECTION_POST_PROCESS, [given], [found], detected)


def _folds() -> Iterator[Trap]:
    yield Trap("cube", N.REDUCE_FUSION, [[CUBE, i4(-1)]], [[CUBE.sum(-1)]], {"mode": ReduceMode.SUM}, (1,))
    yield Trap("twice", N.REDUCE_FUSION, [[SQUARE, i4(1, -1)]], [[f4(1.5, 3.5)]], {"mode": ReduceMode.MEAN}, (1,))
    ones = np.ones(4096, "f2")
    for mode, right in ((ReduceMode.SUM, 4096), (ReduceMode.MEAN, 1)):
        wanted = np.array(right, "f2")
        yield Trap(f"{mode.name}-many_ones", N.REDUCE_FUSION, [[ones, i4(0)]], [[wanted]], {"mode": mode}, (1,))
    sides, length = np.array([300, 400], "f2"), np.array(500, "f2")
    yield Trap("L2-large", N.REDUCE_FUSION, [[sides, i4(0)]], [[length]], {"mode": ReduceMode.L2}, (1,))


def _numbers() -> Iterator[Trap]:
    integers = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
    yield from elementwise(
        "other_bits", N.LOGICAL_AND, [[1, 2, 3, 0], [2, 1, 4, 5]], [1, 1, 1, 0], integers, result="?"
    )
    yield from elementwise("other_bits", N.LOGICAL_NOT, [[2, 1, 0, 4]], [0, 0, 1, 0], integers, result="?")
    x = np.array([2**31, 2**32 - 256, 1], "u4")
    yield Trap("to_f4", N.CAST, [[x, i4(11)]], [[f4(2**31, 2**32 - 256, 1)]], {}, (1,))


def _several_runs() -> Iterator[Trap]:
    """Yield traps of weights that are inputs of a run, and of constants that a run may overwrite."""
    runs = [[SQUARE, OTHER], [SQUARE, SQUARE], [OTHER, SQUARE]]
    yield Trap("weights_of_runs", N.FULL_CONNECTION, runs, [[x @ weight.T] for x, weight in runs])
    pixel, none = f4(3).reshape(1, 1, 1, 1), f4(0)
    kernels = [f4(number).reshape(1, 1, 1, 1) for number in (2, 5)]
    yield Trap(
        "weights_of_runs",
        N.CONV2D_FUSION,
        [[pixel, kernel, none] for kernel in kernels],
        [[pixel * k] for k in kernels],
    )
    vectors = [f4(1), f4(0), f4(0), f4(16)]
    again = [[f4([8], [4]), *vectors]] * 3
    yield Trap(
        "constants_of_runs",
        N.FUSED_BATCH_NORM,
        again,
        [[f4([2], [1])]] * 3,
        {"epsilon": 0.0},
        (1, 2, 3, 4),
        tolerance=ROUNDED,
    )
    sums = [[f4(1, 2), x] for x in (f4(3, 4), f4(5, 5))]
    yield Trap("constants_of_runs", N.ADD_FUSION, sums, [[a + b] for a, b in sums], {}, (0,))
    # All gates are 1/2 and the cell input is 0: c' is half of c, and h' half of tanh(c').
    zeros = [np.zeros((1, *shape), "f4") for shape in ((4, 1), (4, 1), (8,))]
    state = [np.full((1, 1, 1), number, "f4") for number in (1, 2)]
    h = np.full((1, 1, 1), 0.25 + 0.75 * 0.5 * 0.7615941559557649, "f4")
    yield Trap(
        "zoneout",
        N.LSTM,
        [[f4(0).reshape(1, 1, 1), *zeros, *state]],
        [[h, h, np.full((1, 1, 1), 1.5, "f4")]],
        {"zoneout_cell": 0.5, "zoneout_hidden": 0.25},
        tolerance=ROUNDED,
    )
    # A model without an initial state starts from zeros in every run.
    numbers = Numbers("LSTM-no_state")
    weights = [numbers.reals(-1, 1, shape).astype("f4") for shape in ((1, 12, 4), (1, 12, 3), (1, 24))]
    steps = [numbers.reals(-1, 1, (count, 2, 4)).astype("f4") for count in (5, 1, 7, 5)]
    none = np.zeros((1, 2, 3), "f4")
    runs = [[x, *weights, none, none] for x in steps]
    attrs = {"has_bias": True}
    yield Trap("no_state", N.LSTM, runs, None, attrs, (1, 2, 3, 4, 5), tolerance=ROUNDED)
