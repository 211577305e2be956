"""Indices out of range, duplicate indices, the order of equal elements, and sizes known only in a run."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnrt_client.conformance.cases.values.trap import EXACT, REFUSED, Trap
from nnrt_client.conformance.numbers import f4, i4, i8
from nnrt_hdi.enums import DataType, NodeType, ReduceMode
from nnrt_hdi.tensor import TensorSpec

N = NodeType
NAN, INF = float("nan"), float("inf")
X = np.arange(6, dtype="f4").reshape(2, 3)


def traps() -> Iterator[Trap]:
    """Yield the traps of indices and sizes."""
    yield from _outside()
    yield from _twice()
    yield from _order()
    yield from _runtime_operands()
    yield from _cut()


def _outside() -> Iterator[Trap]:
    """Yield traps of three runs: a valid one, one with an index out of range, and the first again."""
    for title, node_type, right, wrong, attrs, constants in (
        ("negative", N.GATHER, [X, i4(0, 1), i4(0)], [X, i4(0, -1), i4(0)], {}, (2,)),
        ("beyond", N.GATHER, [X, i8(2), i8(1)], [X, i8(3), i8(1)], {}, (2,)),
        ("far_beyond", N.GATHER, [X, i8(2), i8(1)], [X, i8(2**62), i8(1)], {}, (2,)),
        ("far_beyond_32_bits", N.GATHER, [X, i8(0), i8(1)], [X, i8(2**32), i8(1)], {}, (2,)),
        ("negative", N.GATHER_ND, [X, i4([1, 2])], [X, i4([0, -1])], {}, ()),
        ("beyond", N.GATHER_ND, [X, i8([1, 2])], [X, i8([0, 3])], {}, ()),
        ("far_beyond", N.GATHER_ND, [X, i8([1, 2])], [X, i8([2**40, 0])], {}, ()),
        ("beyond", N.SCATTER_ND, [i4([0, 2]), f4(1), i4(2, 3)], [i4([0, 3]), f4(1), i4(2, 3)], {}, (2,)),
        ("negative", N.SCATTER_ND, [i8([1, 0]), f4(1), i4(2, 3)], [i8([1, -1]), f4(1), i4(2, 3)], {}, (2,)),
        ("far_beyond", N.SCATTER_ND, [i8([1, 0]), f4(1), i4(2, 3)], [i8([2**40, 0]), f4(1), i4(2, 3)], {}, (2,)),
        ("beyond", N.SPARSE_TO_DENSE, [i8([0, 2]), f4(1), i4(2, 3)], [i8([0, 3]), f4(1), i4(2, 3)], {}, (2,)),
        ("negative", N.SPARSE_TO_DENSE, [i4([1, 0]), f4(1), i4(2, 3)], [i4([1, -1]), f4(1), i4(2, 3)], {}, (2,)),
    ):
        outputs = _valid_output(node_type, right)
        yield Trap(
            f"{title}-{right[1].dtype.name}",
            node_type,
            [right, wrong, right],
            [[outputs], REFUSED, [outputs]],
            attrs,
            constants,
            ends_processes=True,
        )
    truth, data = np.ones(3, np.bool_), f4(0.5, 1.5)
    yield Trap(
        "fails",
        N.ASSERT,
        [[truth, data], [np.array([True, False, True]), data], [truth, data]],
        [[truth], REFUSED, [truth]],
        {"summarize": 2},
    )
    for index in (-1, -4, 3, 2**31 - 1):
        yield Trap(
            f"outside_{index}",
            N.ONE_HOT,
            [[i4(index, 1), i8(3), f4(5), f4(-2)]],
            [[f4([-2, -2, -2], [-2, 5, -2])]],
            {},
            (1,),
            ends_processes=True,
        )


def _valid_output(node_type: NodeType, right: Sequence[Any]) -> Any:
    """Return the outputs of a run with valid indices."""
    if node_type is N.GATHER:
        return X[right[1]] if right[2][0] == 0 else X[:, right[1]]
    if node_type is N.GATHER_ND:
        return f4(5)
    y = np.zeros((2, 3), "f4")
    y[tuple(right[0][0])] = 1
    return y


def _twice() -> Iterator[Trap]:
    """Yield traps with duplicate indices, for which the sum or the last value is right."""
    places, shape = i4([1], [1], [0], [1]), i4(3)
    for dtype, updates, right in (
        ("u1", [100, 100, 7, 57], [7, 1, 0]),
        ("?", [1, 0, 0, 1], [0, 1, 0]),
        ("f2", [2048, 1, 0, 1], [0, 2050, 0]),
        ("f4", [1, 2, 3, 4], [3, 7, 0]),
        ("f8", [1, 2.0**-40, 3, 4], [3, 5 + 2.0**-40, 0]),
        ("i8", [2**62, 2**61, -1, 1], [-1, 2**62 + 2**61 + 1, 0]),
    ):
        yield Trap(
            "twice",
            N.SCATTER_ND,
            [[places, np.array(updates, dtype), shape]],
            [[np.array(right, dtype)]],
            constants=(2,),
        )
        yield Trap(
            f"constant_twice-{dtype}",
            N.SCATTER_ND,
            [[places, np.array(updates, dtype), shape]],
            [[np.array(right, dtype)]],
            constants=(0, 2),
        )
    for dtype in ("f4", "i4", "i8", "u1", "f2", "f8"):
        yield Trap(
            f"last_counts-{dtype}",
            N.SPARSE_TO_DENSE,
            [[i8([0, 1], [1, 0], [0, 1]), np.array([1, 2, 3], dtype), i8(2, 2)]],
            [[np.array([[0, 3], [2, 0]], dtype)]],
            constants=(2,),
        )
    many = (np.arange(4096, dtype="i4") % 4).reshape(-1, 1)
    yield Trap(
        "many",
        N.SCATTER_ND,
        [[many, np.ones((4096, 2), "f4"), i4(5, 2)]],
        [[f4(*[[1024, 1024]] * 4, [0, 0])]],
        constants=(0, 2),
    )


def _order() -> Iterator[Trap]:
    """Yield traps of ties: equal elements keep their order, and NaN comes first."""
    for values, dtype, right in (
        ([0, 1, 0, 1], "?", [1, 3, 0, 2]),
        ([-128, 127, 0, -1], "i1", [1, 2, 3, 0]),
        ([3, 3, 3, 3], "i4", [0, 1, 2, 3]),
        ([3, 3, 3, 3], "f4", [0, 1, 2, 3]),
        ([2**64 - 1, 0, 2**63, 2**63 - 1], "u8", [0, 2, 3, 1]),
        ([2**32 - 1, 0, 2**31, 2**31 - 1], "u4", [0, 2, 3, 1]),
        ([2**53, 2**53 + 1, -(2**63), 2**63 - 1], "i8", [3, 1, 0, 2]),
        ([INF, -INF, NAN, 0], "f2", [2, 0, 3, 1]),
        ([INF, -INF, NAN, 0], "f4", [2, 0, 3, 1]),
        ([0.0, -0.0, NAN, NAN], "f4", [2, 3, 0, 1]),
        ([0.0, -0.0, NAN, NAN], "f8", [2, 3, 0, 1]),
        ([-INF, -INF, -3, -INF], "f4", [2, 0, 1, 3]),
    ):
        x = np.array(values, dtype)
        title = "_".join(str(at) for at in right)
        for count in (1, 3, 4):
            first = right[:count]
            yield Trap(
                f"order_{title}-{count}", N.TOPK_FUSION, [[x, i4(count)]], [[x[first], i4(*first)]], constants=(1,)
            )
            if len(np.unique(x)) == len(x):
                yield Trap(
                    f"order_{title}-{count}_last",
                    N.TOPK_FUSION,
                    [[x, i4(count)]],
                    [[x[first[::-1]], i4(*first[::-1])]],
                    {"sorted": False},
                    (1,),
                )
        yield Trap(f"order_{title}", N.ARGMAX_FUSION, [[x]], [[np.array(right[0], "i4")]])
        yield Trap(f"order_{title}-3", N.ARGMAX_FUSION, [[x]], [[i4(*right[:3])]], {"top_k": 3})
        yield Trap(f"order_{title}-value", N.ARGMAX_FUSION, [[x]], [[x[right[0]]]], {"out_max_value": True})
    tied = i4(2, 1, 2, 3, 1)
    yield Trap(
        "order_last", N.TOPK_FUSION, [[tied, i4(4)]], [[i4(1, 2, 2, 3), i4(1, 0, 2, 3)]], {"sorted": False}, (1,)
    )
    plateau = np.zeros(100, "f4")
    plateau[[17, 64, 99]] = 2
    yield Trap("plateau", N.ARGMAX_FUSION, [[plateau]], [[np.array(17, "i4")]])
    yield Trap(
        "plateau",
        N.TOPK_FUSION,
        [[plateau, i4(5)]],
        [[plateau[[17, 64, 99, 0, 1]], i4(17, 64, 99, 0, 1)]],
        constants=(1,),
    )
    wide = np.tile(np.array([1, 3, 3, 2], "f4"), (5, 1))
    yield Trap("rows", N.ARGMAX_FUSION, [[wide]], [[np.full(5, 1, "i4")]], {"axis": 1})
    yield Trap("columns", N.ARGMAX_FUSION, [[wide]], [[np.zeros(4, "i4")]], {"axis": 0})
    yield Trap(
        "in_64_bits",
        N.ARGMAX_FUSION,
        [[wide]],
        [[np.full(5, 1, "i8")]],
        {"axis": 1},
        declared=(TensorSpec(DataType.INT64, (5,)),),
    )


def _runtime_operands() -> Iterator[Trap]:
    """Yield traps whose axes, sizes and positions are inputs of the run; a device may refuse their models."""
    rows: list[tuple[NodeType, list[Any], dict[str, Any], Any]] = [
        (N.EXPAND_DIMS, [X, i4(1)], {}, X[:, None]),
        (N.SLICE_FUSION, [X, i4(0, 1), i4(2, 1)], {}, X[0:2, 1:2]),
        (N.CROP, [X, i4(2, 1)], {"axis": 1, "offset": (2,)}, X[:, 2:]),
        (N.STRIDED_SLICE, [X, i4(1, -1), i4(0, 0), i4(1, -2)], {"shrink_axis_mask": 1}, X[1, -1:0:-2]),
        (N.STRIDED_SLICE, [X, i4(1, -1), i4(0, 0), i4(1, 1)], {"shrink_axis_mask": 3}, X[1, -1]),
        (N.TILE_FUSION, [X, i4(1, 2)], {}, np.concatenate([X, X], 1)),
        (N.GATHER, [X, i4(1, 1), i4(0)], {}, X[[1, 1]]),
        (N.SCATTER_ND, [i4([2], [0]), f4(7, 8), i4(3)], {}, f4(8, 0, 7)),
        (N.SPARSE_TO_DENSE, [i4([1, 0]), f4(7), i4(2, 2)], {}, f4([0, 0], [7, 0])),
        (N.ONE_HOT, [i4(1), i4(2), f4(7), f4(8)], {}, f4([8, 7])),
        (N.FILL, [f4(7), i4(1, 2)], {}, f4([7, 7])),
        (N.CONSTANT_OF_SHAPE, [i4(1, 2)], {}, f4([0, 0])),
        (N.RESHAPE, [X, i8(3, 2)], {}, X.reshape(3, 2)),
        (N.RESHAPE, [X, i8(-1, 1)], {}, X.reshape(6, 1)),
        (N.TRANSPOSE, [X, i4(1, 0)], {}, X.T),
        (N.REDUCE_FUSION, [X, i4(1)], {"keep_dims": True}, f4([1], [4])),
    ]
    for number, (node_type, given, attrs, right) in enumerate(rows):
        wanted = np.ascontiguousarray(right, "f4")
        yield Trap(f"of_the_run_{number}", node_type, [given], [[wanted.reshape(np.shape(right))]], attrs)
    yield Trap(
        "of_the_run",
        N.TOPK_FUSION,
        [[X, i4(1)], [X, i4(2)], [X, i4(1)]],
        [[f4([2], [5]), i4([2], [2])], [f4([2, 1], [5, 4]), i4([2, 1], [2, 1])], [f4([2], [5]), i4([2], [2])]],
    )
    for title, node_type, right_run, wrong_run, attrs, y in (
        ("too_many", N.TOPK_FUSION, [X, i4(3)], [X, i4(4)], {}, [X[:, ::-1], i4([2, 1, 0], [2, 1, 0])]),
        ("too_far", N.SLICE_FUSION, [X, i4(0, 1), i4(2, 2)], [X, i4(0, 2), i4(2, 2)], {}, [X[:, 1:]]),
        ("negative", N.TILE_FUSION, [X, i4(1, 1)], [X, i4(-1, 1)], {}, [X]),
        ("negative", N.FILL, [f4(7), i4(1, 2)], [f4(7), i4(-1, 2)], {}, [f4([7, 7])]),
        ("no_axis", N.EXPAND_DIMS, [X, i4(0)], [X, i4(3)], {}, [X[None]]),
        ("not_as_many", N.RESHAPE, [X, i8(3, 2)], [X, i8(4, 2)], {}, [X.reshape(3, 2)]),
        ("too_long", N.CROP, [X, i4(2, 1)], [X, i4(2, 2)], {"axis": 1, "offset": (2,)}, [X[:, 2:]]),
        ("twice_an_axis", N.TRANSPOSE, [X, i4(1, 0)], [X, i4(1, 1)], {}, [X.T]),
        ("no_axis", N.REDUCE_FUSION, [X, i4(1)], [X, i4(2)], {"mode": ReduceMode.MAX}, [f4(2, 5)]),
        ("negative", N.ONE_HOT, [i4(1), i4(2), f4(7), f4(8)], [i4(1), i4(-1), f4(7), f4(8)], {}, [f4([8, 7])]),
        ("negative", N.CONSTANT_OF_SHAPE, [i4(1, 2)], [i4(1, -2)], {}, [f4([0, 0])]),
        ("too_small", N.SCATTER_ND, [i4([2]), f4(7), i4(3)], [i4([2]), f4(7), i4(2)], {}, [f4(0, 0, 7)]),
        (
            "too_small",
            N.SPARSE_TO_DENSE,
            [i4([1, 0]), f4(7), i4(2, 1)],
            [i4([1, 0]), f4(7), i4(1, 1)],
            {},
            [f4([0], [7])],
        ),
        ("no_step", N.STRIDED_SLICE, [X, i4(1), i4(0), i4(-1)], [X, i4(1), i4(0), i4(0)], {}, [X[1:0:-1]]),
    ):
        wanted_outputs = [np.ascontiguousarray(output) for output in y]
        yield Trap(
            f"{title}_in_the_run",
            node_type,
            [right_run, wrong_run, right_run],
            [wanted_outputs, REFUSED, wanted_outputs],
            attrs,
            ends_processes=True,
        )


def _cut() -> Iterator[Trap]:
    """Yield traps with slice positions like Python's: from the end, beyond it, and backwards."""
    x = np.arange(24, dtype="f4").reshape(2, 3, 4)
    for number, (begin, end, strides, masks, right) in enumerate(
        (
            ((0, 1, -3), (9, -1, 4), (1, 1, 2), {}, x[:, 1:-1, -3:4:2]),
            ((9, -1), (0, -9), (-1, -2), {}, x[9:0:-1, -1:-9:-2]),
            ((7, 7, 2), (7, 7, 0), (1, -1, -1), {"begin_mask": 3, "end_mask": 7}, x[:, ::-1, 2::-1]),
            ((1, -1), (0, 0), (1, -2), {"shrink_axis_mask": 3}, x[1, -1]),
            ((7, 1), (0, 7), (-1, 1), {"shrink_axis_mask": 1, "begin_mask": 1}, x[0, 1:7]),
            ((0, 0, 1), (0, 0, 3), (1, 1, 1), {"ellipsis_mask": 1, "new_axis_mask": 2}, x[..., None, 1:3]),
            ((3, 2), (1, 2), (1, 1), {}, x[3:1, 2:2]),
        )
    ):
        vectors = [np.array(numbers, "i8") for numbers in (begin, end, strides)]
        wanted = np.ascontiguousarray(right).reshape(right.shape)
        yield Trap(f"python_{number}", N.STRIDED_SLICE, [[x, *vectors]], [[wanted]], masks, (1, 2, 3), tolerance=EXACT)
        yield Trap(
            f"python_{number}_dynamic", N.STRIDED_SLICE, [[x, *vectors]], [[wanted]], masks, (1, 2, 3), has_unknown=True
        )
