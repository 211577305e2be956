"""Sample data: a row or a few per operator, from which the generic tests are made.

An operand that is a tuple is a shape, filled with random numbers of the type under test; `Fixed` is a shape of a type
or range of its own; an array is what it is, and a constant of the model. Shapes of rank 4 are NHWC, and are turned for
NCHW. Attributes are numbers that FLOAT32 holds, as they travel so.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_hdi.enums import ActivationType, Format, NodeType, PaddingMode, PadMode, ReduceMode, RoundMode

AnyArray = NDArray[Any]
Attrs = Mapping[str, Any]

HALF, SINGLE, DOUBLE = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
DTypes = Sequence[np.dtype[Any]]
FLOATS: tuple[np.dtype[Any], ...] = (HALF, SINGLE, DOUBLE)
SIGNED: tuple[np.dtype[Any], ...] = tuple(np.dtype(code) for code in ("i1", "i2", "i4", "i8"))
INTEGERS = SIGNED + tuple(np.dtype(code) for code in ("u1", "u2", "u4", "u8"))
NUMBERS = FLOATS + INTEGERS
BOOL = np.dtype(np.bool_)
ANY = (*NUMBERS, BOOL)
BOTH = (Format.NHWC, Format.NCHW)
PLAIN = (Format.NONE,)


@dataclass(frozen=True)
class Fixed:
    """Random numbers of one type, between bounds."""

    shape: tuple[int, ...]
    dtype: str = ""
    low: float = -4
    high: float = 4


Given = tuple[int, ...] | Fixed | AnyArray


@dataclass(frozen=True, eq=False)
class Row:
    """A node, and the types and layouts to try it with."""

    node_type: NodeType
    operands: Sequence[Given]
    attrs: Attrs = field(default_factory=dict)
    dtypes: DTypes = FLOATS
    layouts: Sequence[Format] = PLAIN


@dataclass(frozen=True, eq=False)
class Sample:
    """A node with its operands. The name is the seed of its random numbers."""

    name: str
    node_type: NodeType
    given: Sequence[Given]
    attrs: Attrs
    dtype: np.dtype[Any]
    layout: Format

    def arrays(self) -> list[AnyArray]:
        random = np.random.default_rng(zlib.crc32(self.name.encode()))
        return [self._array(random, operand) for operand in self.given]

    def is_constant(self, index: int) -> bool:
        return isinstance(self.given[index], np.ndarray)

    def layout_of(self, array: AnyArray) -> Format:
        return self.layout if array.ndim == 4 else Format.NONE

    def _array(self, random: np.random.Generator, given: Given) -> AnyArray:
        if isinstance(given, np.ndarray):
            return given
        wanted = given if isinstance(given, Fixed) else Fixed(given)
        shape = wanted.shape
        if len(shape) == 4 and self.layout is Format.NCHW:
            shape = shape[0], shape[3], shape[1], shape[2]
        dtype = np.dtype(wanted.dtype) if wanted.dtype else self.dtype
        if dtype.kind == "f":
            return random.uniform(wanted.low, wanted.high, shape).astype(dtype)
        if dtype.kind == "b":
            return random.integers(0, 2, shape).astype(dtype)
        low = max(int(wanted.low * 3), np.iinfo(dtype).min)
        return random.integers(low, int(wanted.high * 3), shape).astype(dtype)


def ints(*values: Any, dtype: str = "i8") -> AnyArray:
    """A constant operand of indices."""
    return np.array(values, dtype)


N, A, R = NodeType, ActivationType, ReduceMode
RELU, RELU6 = {"activation_type": A.RELU}, {"activation_type": A.RELU6}
SAME, VALID = {"pad_mode": PadMode.SAME}, {"pad_mode": PadMode.VALID}
CEIL = {"round_mode": RoundMode.CEIL}
NONZERO = Fixed((3, 4), low=1, high=9)


def activations() -> Iterator[Row]:
    plain = {A.NO_ACTIVATION, A.RELU, A.RELU6, A.RELU1, A.ABS}
    attrs: dict[ActivationType, Attrs] = {
        A.ELU: {"alpha": 0.75},
        A.LEAKY_RELU: {"alpha": 0.125},
        A.THRESHOLDRELU: {"alpha": 1.5},
        A.HARD_TANH: {"min_val": -1.5, "max_val": 0.5},
    }
    for kind in A:
        if kind is not A.UNKNOWN:
            # No oracle has the error function in double precision: see test_special.py.
            dtypes = FLOATS + SIGNED if kind in plain else (HALF, SINGLE) if kind is A.GELU else FLOATS
            yield Row(
                N.ACTIVATION,
                [Fixed((2, 3, 17), low=-9, high=9)],
                {"activation_type": kind, **attrs.get(kind, {})},
                dtypes,
            )
    yield Row(N.ACTIVATION, [(2, 3, 17)], {"activation_type": A.GELU, "approximate": True})
    yield Row(N.ACTIVATION, [()], {"activation_type": A.SIGMOID})
    yield Row(N.ACTIVATION, [(0, 3)], {"activation_type": A.TANH})


def arithmetic() -> Iterator[Row]:
    for node_type in (N.ADD_FUSION, N.SUB_FUSION, N.MUL_FUSION):
        logical = NUMBERS if node_type is N.SUB_FUSION else ANY
        yield Row(node_type, [(2, 3, 4), (2, 3, 4)], {}, logical)
        yield Row(node_type, [(2, 1, 4), (3, 1)], RELU, NUMBERS)
        yield Row(node_type, [(), (5,)], RELU6, NUMBERS)
        yield Row(node_type, [(2, 3, 3, 2), (2,)], {}, FLOATS, BOTH[:1])
        yield Row(node_type, [(0, 3), (1, 3)], {}, (SINGLE,))
        yield Row(node_type, [Fixed((2, 3), "i4"), Fixed((2, 3), "f8")], {}, (DOUBLE,))
        yield Row(node_type, [Fixed((2, 3), "?"), Fixed((3,), "i2")], {}, (np.dtype("i2"),))
    yield Row(N.DIV_FUSION, [(3, 4), NONZERO], {}, NUMBERS)
    yield Row(N.DIV_FUSION, [(2, 3, 4), Fixed((1, 4), low=-7, high=-1)], RELU6, FLOATS + SIGNED)
    yield Row(N.DIV_FUSION, [(0, 4), NONZERO.shape[1:]], {}, (SINGLE,))
    yield Row(N.BIAS_ADD, [(3, 5), (5,)], {}, FLOATS + SIGNED[2:])
    yield Row(N.BIAS_ADD, [(2, 3, 5, 4), (4,)], {}, FLOATS, BOTH)
    yield Row(N.BIAS_ADD, [(0, 3, 5, 4), (4,)], {}, (SINGLE,), BOTH)


def linear() -> Iterator[Row]:
    yield Row(N.FULL_CONNECTION, [(5, 7), (3, 7)])
    yield Row(N.FULL_CONNECTION, [(2, 3, 7), (4, 7), (4,)], {"has_bias": True, **RELU})
    yield Row(N.FULL_CONNECTION, [(2, 3, 4), (5, 12), (5,)], {"axis": 1, **RELU6})
    yield Row(N.FULL_CONNECTION, [(2, 3, 4), (5, 12), (5,)], {"axis": -2, "use_axis": True})
    yield Row(N.FULL_CONNECTION, [(2, 3), (5, 6)], {"use_axis": True}, (SINGLE,))
    yield Row(N.FULL_CONNECTION, [(0, 7), (3, 7), (3,)], {}, (SINGLE,))
    yield Row(N.MATMUL_FUSION, [(3, 5), (5, 4)], {}, (*FLOATS, *INTEGERS))
    yield Row(N.MATMUL_FUSION, [(2, 1, 3, 5), (4, 6, 5)], {"transpose_b": True, **RELU})
    yield Row(N.MATMUL_FUSION, [(6, 5, 3), (5, 2)], {"transpose_a": True, **RELU6})
    yield Row(N.MATMUL_FUSION, [(6, 5, 3), (6, 2, 5)], {"transpose_a": True, "transpose_b": True}, (SINGLE,))
    yield Row(N.MATMUL_FUSION, [(0, 3, 5), (5, 4)], {}, (SINGLE,))
    yield Row(N.MATMUL_FUSION, [(2, 3, 1), (1, 4)], {}, (SINGLE,))


def normalization() -> Iterator[Row]:
    vectors: list[Given] = [(4,), (4,), (4,), Fixed((4,), low=0.1, high=3)]
    yield Row(N.FUSED_BATCH_NORM, [(3, 4), *vectors], {}, (HALF, SINGLE))
    yield Row(N.FUSED_BATCH_NORM, [(2, 3, 5, 4), *vectors], {"epsilon": 2.0**-10}, FLOATS, BOTH)
    yield Row(N.FUSED_BATCH_NORM, [(0, 3, 5, 4), *vectors], {}, (SINGLE,), BOTH)
    yield Row(N.FUSED_BATCH_NORM, [(2, 3, 4), *vectors], {}, (SINGLE,))
    for axis in ((), (0,), (1,), (-3,)):
        yield Row(N.SOFTMAX, [Fixed((3, 4, 5), low=-30, high=30)], {"axis": axis})
    yield Row(N.SOFTMAX, [(0, 4)], {"axis": (1,)}, (SINGLE,))
    yield Row(N.SOFTMAX, [(2, 3, 5, 4)], {"axis": (1,)}, (SINGLE,), BOTH)


def moved() -> Iterator[Row]:
    for wanted in ((6, 4), (0, -1), (-1,), (2, 3, 2, 2, -1)):
        yield Row(N.RESHAPE, [(2, 3, 4), ints(*wanted)], {}, ANY if wanted == (6, 4) else (SINGLE,))
    yield Row(N.RESHAPE, [(0, 3), ints(0, 3, dtype="i4")], {}, (SINGLE,))
    yield Row(N.RESHAPE, [(1,), ints()], {}, (SINGLE,))
    yield Row(N.TRANSPOSE, [(2, 3, 4), ints(2, 0, 1)], {}, ANY)
    yield Row(N.TRANSPOSE, [(2, 3, 4), ints(-1, -3, 1, dtype="i4")], {}, (SINGLE,))
    yield Row(N.TRANSPOSE, [(0, 3, 4, 5), ints(0, 3, 1, 2)], {}, (SINGLE,), BOTH)
    yield Row(N.CONCAT, [(2, 3), (4, 3), (1, 3)], {}, ANY)
    yield Row(N.CONCAT, [(2, 3, 4), (2, 3, 1)], {"axis": -1}, (SINGLE,))
    yield Row(N.CONCAT, [(2, 0, 4), (2, 3, 4)], {"axis": 1}, (SINGLE,))
    yield Row(N.PAD_FUSION, [(2, 3), ints((1, 0), (2, 3))], {"constant_value": 5.0}, NUMBERS)
    yield Row(N.PAD_FUSION, [(2, 3), ints((1, 0), (2, 3))], {}, (SINGLE, BOOL))
    yield Row(N.PAD_FUSION, [(4, 5), ints((1, 3), (4, 0), dtype="i4")], {"padding_mode": PaddingMode.REFLECT}, NUMBERS)
    yield Row(N.PAD_FUSION, [(0, 3), ints((0, 0), (2, 3))], {}, (SINGLE,))
    yield Row(N.SQUEEZE, [(1, 3, 1, 4)], {}, ANY)
    yield Row(N.SQUEEZE, [(1, 3, 1, 4)], {"axis": (-2,)}, (SINGLE,))
    yield Row(N.SQUEEZE, [(2, 1, 1, 2, 2)], {"axis": (0, 1)}, (SINGLE,))
    yield Row(N.UNSQUEEZE, [(3, 4)], {"axis": (1,)}, ANY)
    yield Row(N.UNSQUEEZE, [(3, 4)], {"axis": (-1, 0)}, (SINGLE,))
    yield Row(N.UNSQUEEZE, [()], {"axis": (0,)}, (SINGLE,))
    yield Row(N.SHAPE, [(2, 0, 5)], {}, (SINGLE, BOOL))
    yield Row(N.SHAPE, [()], {}, (SINGLE,))


def reductions() -> Iterator[Row]:
    for mode in R:
        dtypes = ANY if mode is R.ALL else FLOATS if mode is R.L2 else NUMBERS
        small = Fixed((2, 3, 4), low=-2, high=2)
        yield Row(N.REDUCE_FUSION, [small, ints(1)], {"mode": mode}, dtypes)
        yield Row(N.REDUCE_FUSION, [small, ints(-1, 0)], {"mode": mode, "keep_dims": True}, (SINGLE,))
        yield Row(N.REDUCE_FUSION, [small, ints()], {"mode": mode}, (SINGLE,))
        yield Row(N.REDUCE_FUSION, [small, ints(1, dtype="i4")], {"mode": mode, "reduce_to_end": True}, (SINGLE,))
        yield Row(N.REDUCE_FUSION, [(0, 4), ints(1)], {"mode": mode}, (SINGLE,))
    to_end = {"reduce_to_end": True, "coeff": 0.5, "keep_dims": True}
    yield Row(N.REDUCE_FUSION, [(2, 3, 5, 4), ints(-3)], to_end, FLOATS)
    yield Row(N.REDUCE_FUSION, [(3, 0), ints(1)], {"mode": R.SUM}, (SINGLE,))
    yield Row(N.REDUCE_FUSION, [(3, 0), ints(1)], {"mode": R.PROD}, (SINGLE,))


def casts() -> Iterator[Row]:
    for number in range(1, 13):
        yield Row(N.CAST, [Fixed((2, 3), low=0, high=30), ints(number, dtype="i4")], {}, ANY)
    yield Row(N.CAST, [(0, 3), ints(4)], {}, (SINGLE,))
    yield Row(N.CAST, [(), np.array(4)], {}, (SINGLE,))


def convolutions() -> Iterator[Row]:
    def row(x: Given, weight: tuple[int, ...], attrs: Attrs, dtypes: DTypes = (SINGLE,)) -> Row:
        return Row(N.CONV2D_FUSION, [x, weight, weight[:1]], attrs, dtypes, BOTH)

    yield row((2, 7, 9, 3), (4, 3, 2, 3), {}, FLOATS)
    yield row((1, 7, 9, 3), (4, 3, 3, 3), {**SAME, **RELU})
    yield row((1, 8, 11, 3), (4, 3, 2, 3), {**SAME, "stride": (2, 3), **RELU6})
    yield row((1, 7, 7, 2), (3, 1, 1, 2), {**SAME, "stride": (3, 3)})
    yield row((1, 9, 8, 4), (6, 3, 3, 2), {"group": 2, "pad_list": (1, 0, 2, 1), "dilation": (2, 1)}, FLOATS)
    yield row((2, 9, 8, 4), (4, 3, 3, 1), {"group": 4, **SAME}, FLOATS)
    yield row((1, 9, 8, 4), (8, 3, 2, 1), {"group": 4, "stride": (2, 1), "kernel_size": (3, 2)})
    yield row((1, 5, 5, 1), (8, 3, 3, 1), {**VALID, "pad_list": (9, 9, 9, 9)})
    yield row((0, 5, 5, 2), (3, 3, 3, 2), SAME)


def transposed_convolutions() -> Iterator[Row]:
    def row(x: Given, weight: tuple[int, ...], attrs: Attrs, dtypes: DTypes = (SINGLE,)) -> Row:
        return Row(N.CONV2D_TRANSPOSE_FUSION, [x, weight, weight[:1]], attrs, dtypes, BOTH)

    yield row((2, 4, 5, 3), (4, 3, 2, 3), {}, FLOATS)
    yield row((1, 4, 5, 3), (4, 3, 3, 3), {**SAME, "stride": (2, 2), **RELU})
    yield row((1, 4, 5, 3), (4, 4, 3, 3), {**SAME, "stride": (3, 1), **RELU6})
    yield row((1, 4, 5, 4), (6, 3, 3, 2), {"group": 2, "stride": (2, 3), "pad_list": (1, 0, 2, 1)}, (HALF, SINGLE))
    yield row((1, 4, 5, 4), (4, 3, 3, 1), {"group": 4, "stride": (2, 2), "dilation": (2, 1), "output_paddings": (1, 0)})
    yield row((1, 4, 5, 2), (3, 2, 2, 2), {**VALID, "stride": (3, 3), "output_paddings": (2,)})
    yield row((0, 4, 5, 2), (3, 2, 2, 2), {**VALID})


def pools() -> Iterator[Row]:
    for node_type in (N.AVGPOOL_FUSION, N.MAX_POOL_FUSION):
        number = (*FLOATS, *SIGNED[:1]) if node_type is N.MAX_POOL_FUSION else FLOATS
        for attrs, dtypes in (
            ({"kernel_size": (3, 2)}, number),
            ({"kernel_size": (3, 3), "strides": (2, 2), **SAME, **RELU}, number),
            ({"kernel_size": (2, 3), "strides": (2, 2), **VALID, **RELU6}, (SINGLE,)),
            ({"kernel_size": (3, 3), "strides": (2, 3), "pad": (1, 2, 0, 1)}, FLOATS),
            ({"kernel_size": (3, 2), "strides": (2, 2), "pad": (1, 1, 1, 1), **CEIL}, (SINGLE,)),
            ({"kernel_size": (2, 2), "strides": (3, 3), **CEIL}, (SINGLE,)),
            ({"global": True, "kernel_size": (2, 2)}, FLOATS),
        ):
            yield Row(node_type, [Fixed((2, 8, 9, 3))], attrs, dtypes, BOTH)
        yield Row(node_type, [(0, 8, 9, 3)], {"kernel_size": (2, 2)}, (SINGLE,), BOTH)


FAMILIES = (
    activations,
    arithmetic,
    linear,
    normalization,
    moved,
    reductions,
    casts,
    convolutions,
    transposed_convolutions,
    pools,
)


def _samples() -> Iterator[Sample]:
    for family in FAMILIES:
        for number, row in enumerate(family()):
            for dtype in row.dtypes:
                for layout in row.layouts:
                    parts = [row.node_type.name, str(number), dtype.name]
                    if layout is not Format.NONE:
                        parts.append(layout.name)
                    yield Sample("-".join(parts), row.node_type, row.operands, row.attrs, dtype, layout)


SAMPLES = list(_samples())
