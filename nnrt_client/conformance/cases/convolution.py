"""Rows (see `cases.row`) of convolutions and pooling."""

from collections.abc import Iterator

from nnrt_client.conformance.cases.row import (
    BOTH,
    FLOATS,
    HALF,
    RELU,
    RELU6,
    SAME,
    SIGNED,
    SINGLE,
    VALID,
    Attrs,
    DTypes,
    Fixed,
    Given,
    Row,
)
from nnrt_hdi.enums import NodeType, RoundMode

CEIL = {"round_mode": RoundMode.CEIL}


def convolutions() -> Iterator[Row]:
    def row(x: Given, weight: tuple[int, ...], attrs: Attrs, dtypes: DTypes = (SINGLE,)) -> Row:
        return Row(NodeType.CONV2D_FUSION, [x, weight, weight[:1]], attrs, dtypes, BOTH)

    yield row((2, 7, 9, 3), (4, 3, 2, 3), {}, FLOATS)
    yield row((1, 7, 9, 3), (4, 3, 3, 3), {**SAME, **RELU})
    yield row((1, 8, 11, 3), (4, 3, 2, 3), {**SAME, "stride": (2, 3), **RELU6})
    yield row((1, 7, 7, 2), (3, 1, 1, 2), {**SAME, "stride": (3, 3)})
    yield row((1, 9, 8, 4), (6, 3, 3, 2), {"group": 2, "pad_list": (1, 0, 2, 1), "dilation": (2, 1)}, FLOATS)
    yield row((2, 9, 8, 4), (4, 3, 3, 1), {"group": 4, **SAME}, FLOATS)
    yield row((1, 9, 8, 4), (8, 3, 2, 1), {"group": 4, "stride": (2, 1), "kernel_size": (3, 2)})
    yield row((1, 5, 5, 1), (8, 3, 3, 1), {**VALID, "pad_list": (9, 9, 9, 9)})
    yield row((0, 5, 5, 2), (3, 3, 3, 2), SAME)
    # Channel and pixel counts that no block or vector size divides, windows of one row or column, padding on each side.
    yield row((1, 11, 13, 17), (19, 3, 3, 17), SAME, (HALF, SINGLE))
    yield row((3, 5, 6, 5), (33, 1, 1, 5), RELU)
    yield row((1, 1, 20, 3), (5, 1, 7, 3), {**SAME, "stride": (1, 3)})
    yield row((1, 20, 1, 3), (5, 7, 1, 3), {**SAME, "dilation": (2, 1)})
    yield row((1, 6, 6, 2), (3, 3, 3, 2), {"pad_list": (2, 0, 0, 1), "stride": (2, 1)})
    yield row((1, 6, 6, 2), (3, 2, 2, 2), {"pad_list": (0, 1, 1, 0), "stride": (1, 2), **RELU6})
    yield row((1, 7, 7, 6), (6, 3, 3, 1), {"group": 6, "stride": (2, 2), **SAME, **RELU6}, (HALF, SINGLE))
    yield row((1, 10, 9, 8), (16, 3, 3, 2), {"group": 4, **SAME, "dilation": (2, 3)})
    yield row((1, 5, 5, 3), (2, 5, 5, 3), {})
    yield row((1, 3, 3, 2), (2, 5, 5, 2), SAME)
    yield row((2, 4, 4, 1), (1, 2, 2, 1), {**VALID, "stride": (4, 4)})
    # One channel per filter, windows that are not square, and strides that don't divide the number of pixels.
    for height, width in ((3, 1), (1, 3), (5, 2)):
        for stride in ((1, 1), (3, 1), (2, 3)):
            yield row((1, 9, 8, 3), (3, height, width, 1), {"group": 3, **SAME, "stride": stride})
            yield row((1, 9, 8, 2), (3, height, width, 2), {**SAME, "stride": stride})


def transposed_convolutions() -> Iterator[Row]:
    def row(x: Given, weight: tuple[int, ...], attrs: Attrs, dtypes: DTypes = (SINGLE,)) -> Row:
        return Row(NodeType.CONV2D_TRANSPOSE_FUSION, [x, weight, weight[:1]], attrs, dtypes, BOTH)

    yield row((2, 4, 5, 3), (4, 3, 2, 3), {}, FLOATS)
    yield row((1, 4, 5, 3), (4, 3, 3, 3), {**SAME, "stride": (2, 2), **RELU})
    yield row((1, 4, 5, 3), (4, 4, 3, 3), {**SAME, "stride": (3, 1), **RELU6})
    yield row((1, 4, 5, 4), (6, 3, 3, 2), {"group": 2, "stride": (2, 3), "pad_list": (1, 0, 2, 1)}, (HALF, SINGLE))
    yield row((1, 4, 5, 4), (4, 3, 3, 1), {"group": 4, "stride": (2, 2), "dilation": (2, 1), "output_paddings": (1, 0)})
    yield row((1, 4, 5, 2), (3, 2, 2, 2), {**VALID, "stride": (3, 3), "output_paddings": (2,)})
    yield row((0, 4, 5, 2), (3, 2, 2, 2), {**VALID})
    yield row((1, 5, 3, 7), (9, 3, 3, 7), {**SAME, "stride": (2, 2)}, (HALF, SINGLE))
    yield row((2, 3, 4, 3), (3, 1, 1, 3), {"stride": (3, 2)})
    yield row((1, 4, 4, 6), (6, 3, 3, 1), {"group": 6, **SAME, "stride": (2, 2), **RELU6})
    yield row((1, 4, 4, 4), (8, 2, 3, 2), {"group": 2, "pad_list": (0, 1, 1, 0), "stride": (2, 2)})
    yield row((1, 3, 3, 2), (2, 3, 3, 2), {"dilation": (2, 2), "stride": (2, 3)})
    # No oracle supports SAME with strides larger than the window.
    for height, width in ((3, 1), (1, 3), (5, 2)):
        for stride in ((1, 1), (height, 1), (1, width), ((height + 1) // 2, width)):
            yield row((1, 4, 5, 3), (3, height, width, 1), {"group": 3, **SAME, "stride": stride})
            yield row((1, 4, 5, 2), (3, height, width, 2), {**SAME, "stride": stride})


def pools() -> Iterator[Row]:
    for node_type in (NodeType.AVGPOOL_FUSION, NodeType.MAX_POOL_FUSION):
        number = (*FLOATS, *SIGNED[:1]) if node_type is NodeType.MAX_POOL_FUSION else FLOATS
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
        for attrs in (
            {"kernel_size": (3, 3), "strides": (1, 1), **SAME},
            {"kernel_size": (2, 2), "strides": (2, 2), "pad": (1, 0, 0, 1)},
            {"kernel_size": (3, 1), "strides": (2, 3), **CEIL},
            {"kernel_size": (1, 1), "strides": (2, 2)},
            {"kernel_size": (8, 9), "strides": (1, 1), **VALID},
            {"kernel_size": (3, 3), "strides": (3, 3), "pad": (1, 1, 1, 1), **RELU},
        ):
            yield Row(node_type, [Fixed((1, 8, 9, 17), low=-9, high=2)], attrs, (HALF, SINGLE), BOTH)
        yield Row(node_type, [(0, 8, 9, 3)], {"kernel_size": (2, 2)}, (SINGLE,), BOTH)
        for image, attrs in (
            ((1, 13, 11, 2), {"kernel_size": (7, 5), "pad": (3, 3, 2, 2)}),
            ((1, 45, 9, 2), {"kernel_size": (40, 6)}),
            ((1, 40, 38, 2), {"kernel_size": (35, 37), "pad": (0, 2, 20, 3)}),
            ((17, 5, 4, 2), {"kernel_size": (3, 1), **SAME}),
            ((1, 9, 4, 3), {"kernel_size": (1, 3), "strides": (2, 1), **SAME}),
        ):
            yield Row(node_type, [Fixed(image)], attrs, (SINGLE,), BOTH)


def rows() -> Iterator[Row]:
    yield from convolutions()
    yield from transposed_convolutions()
    yield from pools()
