"""Rows (see `cases.row`) of operators that move elements without changing them."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nnrt_client.conformance.cases.row import (
    ANY,
    BOOL,
    BOTH,
    FLOATS,
    FULL,
    NUMBERS,
    SINGLE,
    SIZES,
    Attrs,
    Fixed,
    Row,
    ints,
)
from nnrt_hdi.enums import NodeType, PaddingMode

# Begin, end, stride and masks of STRIDED_SLICE, for x of shape [4, 5, 6].
STRIDED: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], Attrs], ...] = (
    ((1, -4, 0), (3, -1, 9), (1, 2, 3), {}),
    ((3, 4), (0, -9), (-1, -2), {}),
    ((3, 3), (1, 1), (1, 1), {"begin_mask": 1, "end_mask": 2}),
    ((1, 1), (1, 1), (-1, -1), {"begin_mask": 2, "end_mask": 1}),
    ((2, 1, -1), (0, 4, 0), (1, 1, 1), {"shrink_axis_mask": 5}),
    ((1, 0, 2), (3, 0, 4), (1, 1, 1), {"new_axis_mask": 2}),
    ((2, 0, 1), (3, 0, 2), (1, 1, -1), {"new_axis_mask": 2, "shrink_axis_mask": 1, "end_mask": 4}),
    ((), (), (), {}),
)


def rows() -> Iterator[Row]:
    for wanted in ((6, 4), (0, -1), (-1,), (2, 3, 2, 2, -1)):
        yield Row(NodeType.RESHAPE, [(2, 3, 4), ints(*wanted)], {}, ANY if wanted == (6, 4) else (SINGLE,))
    yield Row(NodeType.RESHAPE, [(0, 3), ints(0, 3, dtype="i4")], {}, (SINGLE,))
    yield Row(NodeType.RESHAPE, [(1,), ints()], {}, (SINGLE,))
    yield Row(NodeType.TRANSPOSE, [(2, 3, 4), ints(2, 0, 1)], {}, ANY)
    yield Row(NodeType.TRANSPOSE, [(2, 3, 4), ints(-1, -3, 1, dtype="i4")], {}, (SINGLE,))
    yield Row(NodeType.TRANSPOSE, [(0, 3, 4, 5), ints(0, 3, 1, 2)], {}, (SINGLE,), BOTH)
    yield Row(NodeType.CONCAT, [(2, 3), (4, 3), (1, 3)], {}, ANY)
    yield Row(NodeType.CONCAT, [(2, 3, 4), (2, 3, 1)], {"axis": -1}, (SINGLE,))
    yield Row(NodeType.CONCAT, [(2, 0, 4), (2, 3, 4)], {"axis": 1}, (SINGLE,))
    yield Row(NodeType.PAD_FUSION, [(2, 3), ints((1, 0), (2, 3))], {"constant_value": 5.0}, NUMBERS)
    yield Row(NodeType.PAD_FUSION, [(2, 3), ints((1, 0), (2, 3))], {}, (SINGLE, BOOL))
    yield Row(
        NodeType.PAD_FUSION, [(4, 5), ints((1, 3), (4, 0), dtype="i4")], {"padding_mode": PaddingMode.REFLECT}, NUMBERS
    )
    yield Row(NodeType.PAD_FUSION, [(0, 3), ints((0, 0), (2, 3))], {}, (SINGLE,))
    yield Row(NodeType.SQUEEZE, [(1, 3, 1, 4)], {}, ANY)
    yield Row(NodeType.SQUEEZE, [(1, 3, 1, 4)], {"axis": (-2,)}, (SINGLE,))
    yield Row(NodeType.SQUEEZE, [(2, 1, 1, 2, 2)], {"axis": (0, 1)}, (SINGLE,))
    yield Row(NodeType.UNSQUEEZE, [(3, 4)], {"axis": (1,)}, ANY)
    yield Row(NodeType.UNSQUEEZE, [(3, 4)], {"axis": (-1, 0)}, (SINGLE,))
    yield Row(NodeType.UNSQUEEZE, [()], {"axis": (0,)}, (SINGLE,))
    yield Row(NodeType.SHAPE, [(2, 0, 5)], {}, (SINGLE, BOOL))
    yield Row(NodeType.SHAPE, [()], {}, (SINGLE,))
    yield from _cut()
    yield from _repeated()
    yield Row(NodeType.STACK, [(2, 3), (2, 3), (2, 3)], {}, ANY)
    for axis in (1, -1, -3):
        yield Row(NodeType.STACK, [(2, 3), (2, 3)], {"axis": axis}, (SINGLE,))
    yield Row(NodeType.STACK, [(), ()], {}, (SINGLE,))
    yield Row(NodeType.STACK, [(0, 3), (0, 3)], {"axis": 1}, (SINGLE,))
    for axis in (0, -1, 2):
        yield Row(NodeType.EXPAND_DIMS, [(3, 4), ints(axis, dtype="i4")], {}, ANY if axis == 0 else (SINGLE,))
    yield Row(NodeType.EXPAND_DIMS, [(), np.array(0)], {}, (SINGLE,))
    yield Row(NodeType.EXPAND_DIMS, [(0, 3), ints(1)], {}, (SINGLE,))
    yield Row(NodeType.FLATTEN, [(2, 3, 4)], {}, ANY)
    for axis in (0, 3, -1, -3):
        yield Row(NodeType.FLATTEN, [(2, 3, 4)], {"axis": axis}, (SINGLE,))
    yield Row(NodeType.FLATTEN, [()], {"axis": 0}, (SINGLE,))
    yield Row(NodeType.FLATTEN, [(0, 3)], {}, (SINGLE,))
    yield Row(NodeType.RANK, [(2, 0, 5)], {}, (SINGLE, BOOL))
    yield Row(NodeType.RANK, [()], {}, (SINGLE,))
    yield from _many_ranks()
    yield from _long()


def _many_ranks() -> Iterator[Row]:
    """Yield rows of rank 1 to 6, along each axis."""
    for order in (
        *((0,), (1, 0), (0, 2, 1), (1, 0, 2), (2, 1, 0), (0, 3, 1, 2), (0, 2, 3, 1), (3, 2, 1, 0), (1, 2, 3, 0)),
        *((4, 0, 3, 1, 2), (0, 1, 3, 2, 4), (5, 4, 3, 2, 1, 0), (0, 2, 4, 1, 3, 5)),
    ):
        yield Row(NodeType.TRANSPOSE, [(2, 3, 4, 5, 1, 2)[: len(order)], ints(*order)], {}, SIZES)
    yield Row(NodeType.TRANSPOSE, [(65, 33), ints(1, 0)], {}, NUMBERS)
    for rank in range(1, 6):
        shape = (2, 3, 2, 3, 2)[:rank]
        for axis in range(-rank, rank):
            longer = tuple(dim + 1 if at == axis % rank else dim for at, dim in enumerate(shape))
            yield Row(NodeType.CONCAT, [shape, longer, shape], {"axis": axis}, SIZES)
            yield Row(NodeType.STACK, [shape, shape], {"axis": axis}, (SINGLE,))
            even = tuple(dim * 2 for dim in shape)
            yield Row(NodeType.SPLIT, [even], {"axis": axis, "output_num": 2}, (SINGLE,))
            yield Row(NodeType.UNSTACK, [shape], {"axis": axis}, (SINGLE,))
            yield Row(NodeType.FLATTEN, [shape], {"axis": axis}, (SINGLE,))
            yield Row(NodeType.EXPAND_DIMS, [shape, ints(axis)], {}, (SINGLE,))
            yield Row(NodeType.UNSQUEEZE, [shape], {"axis": (axis,)}, (SINGLE,))
        pads = ints(*[(at % 2 + 1, at % 3) for at in range(rank)])
        yield Row(NodeType.PAD_FUSION, [shape, pads], {"constant_value": -1.5}, FLOATS)
        if rank > 1:
            whole = tuple(dim + 3 for dim in shape)
            yield Row(NodeType.PAD_FUSION, [whole, pads], {"padding_mode": PaddingMode.REFLECT}, (SINGLE,))
        yield Row(NodeType.TILE_FUSION, [shape, ints(*[at % 3 + 1 for at in range(rank)])], {}, (SINGLE,))
        yield Row(NodeType.BROADCAST_TO, [(1,) * rank], {"shape": shape}, (SINGLE,))
        yield Row(NodeType.SHAPE, [shape], {}, SIZES)
        yield Row(NodeType.RANK, [shape], {}, SIZES)
        begin, size = [at % 2 for at in range(rank)], [dim - at % 2 for at, dim in enumerate(shape)]
        yield Row(NodeType.SLICE_FUSION, [shape, ints(*begin), ints(*size)], {}, SIZES)
        ends = [-9 if at % 2 else 9 for at in range(rank)]
        starts = [9 if at % 2 else 0 for at in range(rank)]
        strides = [-1 if at % 2 else 2 for at in range(rank)]
        yield Row(NodeType.STRIDED_SLICE, [shape, ints(*starts), ints(*ends), ints(*strides)], {}, SIZES)


def _cut() -> Iterator[Row]:
    """Yield rows that slice a tensor."""
    yield Row(NodeType.SPLIT, [(2, 6)], {"axis": 1, "output_num": 3}, ANY)
    yield Row(NodeType.SPLIT, [(2, 6)], {"axis": -1, "output_num": 3, "size_splits": (1, 0, 5)}, (SINGLE,))
    yield Row(NodeType.SPLIT, [(3, 2)], {"size_splits": (3,)}, (SINGLE,))
    yield Row(NodeType.SPLIT, [(4, 0)], {"output_num": 2}, (SINGLE,))
    for axis in (0, -1, 1):
        yield Row(NodeType.UNSTACK, [(2, 3, 4)], {"axis": axis}, ANY if axis == 0 else (SINGLE,))
    yield Row(NodeType.UNSTACK, [(3,)], {}, (SINGLE,))
    yield Row(NodeType.UNSTACK, [(2, 0)], {}, (SINGLE,))
    yield Row(NodeType.SLICE_FUSION, [(4, 5, 6), ints(1, 0, 2), ints(2, 5, 1)], {}, ANY)
    yield Row(NodeType.SLICE_FUSION, [(4, 5, 6), ints(3, 1), ints(1, 2)], {"axes": (-1, 0)}, (SINGLE,))
    yield Row(NodeType.SLICE_FUSION, [(4, 5, 6, 2), *[ints(1, 0, 1, 0, dtype="i4")] * 2], {}, (SINGLE,), BOTH)
    yield Row(NodeType.SLICE_FUSION, [(0, 3), ints(0, 3), ints(0, 0)], {}, (SINGLE,))
    yield Row(NodeType.CROP, [(4, 5, 6), ints(9, 3, 2)], {"axis": 1, "offset": (2,)}, ANY)
    for offset in ((), (1, 2, 3), (2, 3)):
        yield Row(NodeType.CROP, [(4, 5, 6), ints(4, 3, 2, dtype="i4")], {"axis": -2, "offset": offset}, (SINGLE,))
    yield Row(NodeType.CROP, [(0, 3), ints(0, 2)], {"offset": (0, 1)}, (SINGLE,))
    for number, (begin, end, strides, masks) in enumerate(STRIDED):
        vectors = [ints(*values, dtype="i4" if number % 2 else "i8") for values in (begin, end, strides)]
        yield Row(NodeType.STRIDED_SLICE, [(4, 5, 6), *vectors], masks, (SINGLE,) if number else ANY)
    yield Row(NodeType.STRIDED_SLICE, [(0, 3), ints(0, 1), ints(9, 9), ints(1, 1)], {}, (SINGLE,))
    yield Row(NodeType.STRIDED_SLICE, [(), ints(0), ints(0), ints(1)], {"new_axis_mask": 1}, (SINGLE,))


def _repeated() -> Iterator[Row]:
    yield Row(NodeType.TILE_FUSION, [(2, 3), ints(3, 2)], {}, ANY)
    yield Row(NodeType.TILE_FUSION, [(2, 3), ints(2, 1, 2, dtype="i4")], {}, (SINGLE,))
    yield Row(NodeType.TILE_FUSION, [(2, 3), ints(2, 0)], {}, (SINGLE,))
    yield Row(NodeType.TILE_FUSION, [(2, 3, 4), ints(2, 3)], {"dims": (-1, 0)}, (SINGLE,))
    # NNRt's own client sends dims (0,) when dims is unset: it must be ignored for two multiples.
    yield Row(NodeType.TILE_FUSION, [(2, 3), ints(2, 3)], {"dims": (0,)}, (SINGLE,))
    yield Row(NodeType.TILE_FUSION, [(), ints(4)], {}, (SINGLE,))
    yield Row(NodeType.TILE_FUSION, [(0, 3), ints(2, 2)], {}, (SINGLE,))
    yield Row(NodeType.BROADCAST_TO, [(2, 1)], {"shape": (2, 3)}, ANY)
    yield Row(NodeType.BROADCAST_TO, [(2, 1, 4)], {"shape": (3, -1, 5, 4)}, (SINGLE,))
    yield Row(NodeType.BROADCAST_TO, [()], {"shape": (2, 2)}, (SINGLE,))
    yield Row(NodeType.BROADCAST_TO, [()], {}, (SINGLE,))
    yield Row(NodeType.BROADCAST_TO, [(1, 3)], {"shape": (0, 3)}, (SINGLE,))


def _long() -> Iterator[Row]:
    """Yield rows with more elements than 16 bits can count, of only a few different values."""
    few = Fixed((65537,), low=-0.5, high=0.5)
    yield Row(NodeType.CONCAT, [replace(few, shape=(17,)), few, replace(few, shape=(4097,))], {}, SIZES[2:3])
    yield Row(NodeType.STRIDED_SLICE, [(100_003,), ints(100_002), ints(-200_000), ints(-4099)], {}, SIZES)
    yield Row(NodeType.SLICE_FUSION, [(100_003,), ints(99_986), ints(17)], {}, SIZES)
    yield Row(NodeType.TRANSPOSE, [replace(few, shape=(17, 4097)), ints(1, 0)], {}, SIZES[2:3])
    yield Row(NodeType.TILE_FUSION, [replace(few, shape=(17,)), ints(4097)], {}, SIZES[2:3])
    full = Fixed((3, 5), **FULL)
    yield Row(NodeType.CONCAT, [full, full], {"axis": 1}, SIZES[1:])
    yield Row(NodeType.TRANSPOSE, [full, ints(1, 0)], {}, SIZES[1:])
    yield Row(NodeType.STRIDED_SLICE, [full, ints(2, 4), ints(-9, -9), ints(-1, -2)], {}, SIZES[1:])
