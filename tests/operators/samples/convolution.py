"""Convolutions and pooling."""

from collections.abc import Iterator

from nnrt_hdi.enums import NodeType, RoundMode

from .row import BOTH, FLOATS, HALF, RELU, RELU6, SAME, SIGNED, SINGLE, VALID, Attrs, DTypes, Fixed, Given, Row

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
        yield Row(node_type, [(0, 8, 9, 3)], {"kernel_size": (2, 2)}, (SINGLE,), BOTH)
        for image, attrs in (
            ((1, 13, 11, 2), {"kernel_size": (7, 5), "pad": (3, 3, 2, 2)}),
            ((1, 45, 9, 2), {"kernel_size": (40, 6)}),
            ((1, 40, 38, 2), {"kernel_size": (35, 37), "pad": (0, 2, 20, 3)}),
        ):
            yield Row(node_type, [Fixed(image)], attrs, (SINGLE,), BOTH)


def rows() -> Iterator[Row]:
    yield from convolutions()
    yield from transposed_convolutions()
    yield from pools()
