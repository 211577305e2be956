"""Rows (see `cases.row`) of normalizations."""

from collections.abc import Iterator

from nnrt_client.conformance.cases.row import BOTH, FLOATS, HALF, RELU, RELU6, SINGLE, Fixed, Given, Row
from nnrt_hdi.enums import Format, NodeType


def standardizations() -> Iterator[Row]:
    big = Fixed((3, 4, 5), low=-300, high=500)
    yield Row(NodeType.LAYER_NORM_FUSION, [big, (4, 5), (4, 5)])
    yield Row(NodeType.LAYER_NORM_FUSION, [big, (5,), (5,)], {"begin_norm_axis": 2, "epsilon": 2.0**-10})
    yield Row(NodeType.LAYER_NORM_FUSION, [big, (5,), (5,)], {"begin_norm_axis": 2, "elementwise_affine": False})
    yield Row(NodeType.LAYER_NORM_FUSION, [(2, 1), (1,), (1,)], {"begin_params_axis": 1}, (SINGLE,))
    yield Row(NodeType.LAYER_NORM_FUSION, [(0, 3), (3,), (3,)], {}, (SINGLE,))
    image = Fixed((2, 3, 5, 4), low=-300, high=500)
    yield Row(NodeType.INSTANCE_NORM, [image, (4,), (4,)], {}, FLOATS, BOTH)
    yield Row(NodeType.INSTANCE_NORM, [image, (4,), (4,)], {"epsilon": 2.0**-10}, (SINGLE,), BOTH)
    yield Row(NodeType.INSTANCE_NORM, [(2, 3, 5, 4), (3,), (3,)], {"epsilon": 0.5}, FLOATS, (Format.NHWC,))
    yield Row(NodeType.INSTANCE_NORM, [(2, 3, 5, 4), (5,), (5,)], {"epsilon": 0.5}, (SINGLE,), (Format.NCHW,))
    yield Row(NodeType.INSTANCE_NORM, [(0, 3, 5, 4), (4,), (4,)], {}, (SINGLE,), BOTH)


def rows() -> Iterator[Row]:
    yield from standardizations()
    vectors: list[Given] = [(4,), (4,), (4,), Fixed((4,), low=0.1, high=3)]
    yield Row(NodeType.FUSED_BATCH_NORM, [(3, 4), *vectors], {}, (HALF, SINGLE))
    yield Row(NodeType.FUSED_BATCH_NORM, [(2, 3, 5, 4), *vectors], {"epsilon": 2.0**-10}, FLOATS, BOTH)
    yield Row(NodeType.FUSED_BATCH_NORM, [(0, 3, 5, 4), *vectors], {}, (SINGLE,), BOTH)
    yield Row(NodeType.FUSED_BATCH_NORM, [(2, 3, 4), *vectors], {}, (SINGLE,))
    for axis in ((), (0,), (1,), (-3,)):
        yield Row(NodeType.SOFTMAX, [Fixed((3, 4, 5), low=-30, high=30)], {"axis": axis})
    yield Row(NodeType.SOFTMAX, [(0, 4)], {"axis": (1,)}, (SINGLE,))
    yield Row(NodeType.SOFTMAX, [(2, 3, 5, 4)], {"axis": (1,)}, (SINGLE,), BOTH)
    for along in (0, 1, -1):
        yield Row(NodeType.LOG_SOFTMAX, [Fixed((3, 4, 5), low=-90, high=90)], {"axis": along})
    yield Row(NodeType.LOG_SOFTMAX, [(0, 4)], {"axis": 1}, (SINGLE,))
    yield Row(NodeType.L2_NORMALIZE_FUSION, [(3, 4, 5)])
    yield Row(NodeType.L2_NORMALIZE_FUSION, [(3, 4, 5)], {"axis": (-1,), "epsilon": 32.0, **RELU})
    yield Row(NodeType.L2_NORMALIZE_FUSION, [Fixed((3, 4, 5), low=-99, high=99)], {"axis": (2, 0), **RELU6})
    yield Row(NodeType.L2_NORMALIZE_FUSION, [()], {}, (SINGLE,))
    yield Row(NodeType.L2_NORMALIZE_FUSION, [(0, 4)], {"axis": (1,)}, (SINGLE,))
    numbers = {"bias": 2.0, "alpha": 0.25, "beta": 0.75}
    # No oracle computes LRN in double precision: see test_by_hand.py.
    yield Row(NodeType.LRN, [(2, 3, 2, 7)], {"depth_radius": 2, **numbers}, (HALF, SINGLE), BOTH)
    yield Row(NodeType.LRN, [(2, 3, 2, 4)], {"depth_radius": 5}, (HALF, SINGLE), BOTH)
    yield Row(NodeType.LRN, [(2, 3, 2, 4)], {}, (SINGLE,), BOTH)
    yield Row(NodeType.LRN, [(0, 3, 2, 4)], {"depth_radius": 1}, (SINGLE,), BOTH)
    for rank in range(1, 6):
        shape = (2, 3, 2, 3, 5)[-rank:]
        for dimension in range(-rank, rank):
            yield Row(NodeType.SOFTMAX, [Fixed(shape, low=-9, high=9)], {"axis": (dimension,)}, (SINGLE,))
            yield Row(NodeType.LOG_SOFTMAX, [Fixed(shape, low=-9, high=9)], {"axis": dimension}, (SINGLE,))
    for width in (1, 2, 65, 257):
        yield Row(NodeType.SOFTMAX, [Fixed((3, width), low=-9, high=9)], {"axis": (-1,)}, FLOATS)
        yield Row(NodeType.LAYER_NORM_FUSION, [(3, width), (width,), (width,)], {"epsilon": 2.0**-10}, (SINGLE,))
    long = Fixed((1, 4097), low=-9, high=9)
    yield Row(NodeType.SOFTMAX, [long], {"axis": (-1,)}, (SINGLE,))
    yield Row(NodeType.LOG_SOFTMAX, [long], {"axis": -1}, (SINGLE,))
    for begin in (1, 2, 3):
        shape = (2, 3, 4, 5)[begin:]
        attrs = {"begin_norm_axis": begin, "begin_params_axis": begin, "epsilon": 2.0**-10}
        yield Row(NodeType.LAYER_NORM_FUSION, [(2, 3, 4, 5), shape, shape], attrs)
    yield Row(NodeType.FUSED_BATCH_NORM, [(2, 5, 4, 17), *[Fixed((17,), low=0.1, high=3)] * 4], {}, (SINGLE,), BOTH)
