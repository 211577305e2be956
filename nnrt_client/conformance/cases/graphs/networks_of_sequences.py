"""Sequence networks: recurrent networks, transformers, embeddings, and sequences of any length."""

from collections.abc import Iterator

import numpy as np

from nnrt_client.conformance.cases.graphs.net import Made, Net, Network
from nnrt_hdi.enums import ActivationType, NodeType, ReduceMode

N = NodeType


def networks() -> Iterator[Network]:
    """Yield the sequence networks."""
    yield Network("mlp", mlp, "linear", dtypes=("f4", "f2", "f8"), also_half=True)
    yield Network("lstm", lstm, "linear")
    yield Network("lstm_both_ways", lstm_both_ways, "linear")
    yield Network("gru_by_hand", gru_by_hand, "linear", also_half=True)
    yield Network("attention", attention, "linear", also_half=True)
    yield Network("transformer_block", transformer_block, "linear", also_half=True)
    yield Network("masked_attention", masked_attention, "linear")
    yield Network("dynamic_length", dynamic_length, "linear")
    yield Network("dynamic_batch_and_length", dynamic_batch_and_length, "linear")
    yield Network("embeddings", embeddings, "indexing")
    yield Network("text_convolution", text_convolution, "convolution")
    yield Network("layer_norm_by_hand", layer_norm_by_hand, "normalization", also_half=True)
    yield Network("gelu_by_hand", gelu_by_hand, "activation")
    yield Network("rotary", rotary, "shape")
    yield Network("mixture", mixture, "linear")
    yield Network("log_likelihood", log_likelihood, "normalization")


def dense(net: Net, x: int, out: int, **attrs: object) -> int:
    """Add x W + b along the last dimension."""
    y = net.op(N.MATMUL_FUSION, x, net.weights(out, net.spec(x).shape[-1]), transpose_b=True)
    return net.op(N.ADD_FUSION, y, net.weights(out), **attrs)


def norm(net: Net, x: int) -> int:
    width, rank = net.spec(x).shape[-1], net.spec(x).rank
    return net.op(
        N.LAYER_NORM_FUSION,
        x,
        net.weights(width, size=1),
        net.weights(width),
        begin_norm_axis=rank - 1,
        begin_params_axis=rank - 1,
        epsilon=2.0**-16,
    )


def mlp(net: Net) -> Made:
    x = net.input(3, 12)
    y = net.op(
        N.FULL_CONNECTION, x, net.weights(16, 12), net.weights(16), has_bias=True, activation_type=ActivationType.RELU
    )
    y = net.op(N.ACTIVATION, dense(net, y, 8), activation_type=ActivationType.TANH)
    return net.graph(net.op(N.SOFTMAX, dense(net, y, 4), axis=(-1,))), [[net.reals(3, 12)], [net.reals(3, 12)]]


def _lstm(net: Net, x: int, inputs: int, hidden: int, batch: int, directions: int) -> tuple[int, ...]:
    shapes = ((4 * hidden, inputs), (4 * hidden, hidden), (8 * hidden,), (batch, hidden), (batch, hidden))
    operands = [net.weights(directions, *shape, size=0.5) for shape in shapes]
    return net.ops(N.LSTM, x, *operands, has_bias=True, bidirectional=directions == 2)


def lstm(net: Net) -> Made:
    x = net.input(7, 2, 5)
    y, h, c = _lstm(net, x, 5, 6, 2, 1)
    again, *_ = _lstm(net, net.op(N.ACTIVATION, y, activation_type=ActivationType.TANH), 6, 4, 2, 1)
    last = net.op(N.SLICE_FUSION, again, net.ints(6, 0, 0), net.ints(1, 2, 4))
    return net.graph(dense(net, last, 3), h, c), [[net.reals(7, 2, 5)], [net.reals(7, 2, 5)]]


def lstm_both_ways(net: Net) -> Made:
    x = net.input(4, 3, 5)
    y, h, _ = _lstm(net, x, 5, 4, 3, 2)
    turned = net.op(N.TRANSPOSE, y, net.ints(1, 0, 2))
    return net.graph(net.op(N.REDUCE_FUSION, turned, net.ints(1), mode=ReduceMode.MAX), h), [[net.reals(4, 3, 5)]]


def gru_by_hand(net: Net) -> Made:
    """Build a GRU that is unrolled step by step with the same weights."""
    x, h = net.input(5, 2, 4), net.weights(2, 3)
    w, u = net.weights(9, 4), net.weights(9, 3)
    for step in net.ops(N.UNSTACK, x, axis=0):
        given = net.ops(N.SPLIT, net.op(N.MATMUL_FUSION, step, w, transpose_b=True), axis=1, output_num=3)
        kept = net.ops(N.SPLIT, net.op(N.MATMUL_FUSION, h, u, transpose_b=True), axis=1, output_num=3)
        z, r = (
            net.op(N.ACTIVATION, net.op(N.ADD_FUSION, a, b), activation_type=ActivationType.SIGMOID)
            for a, b in zip(given[:2], kept[:2], strict=True)
        )
        new = net.op(N.ADD_FUSION, given[2], net.op(N.MUL_FUSION, r, kept[2]))
        new = net.op(N.ACTIVATION, new, activation_type=ActivationType.TANH)
        h = net.op(N.ADD_FUSION, new, net.op(N.MUL_FUSION, z, net.op(N.SUB_FUSION, h, new)))
    return net.graph(h), [[net.reals(5, 2, 4)], [net.reals(5, 2, 4)]]


def _heads(net: Net, x: int, length: int, heads: int, *order: int) -> int:
    size = net.spec(x).shape[-1] // heads
    batch = net.spec(x).shape[0]
    split = net.op(N.RESHAPE, x, net.ints(batch, length, heads, size))
    return net.op(N.TRANSPOSE, split, net.ints(*order))


def _attention(net: Net, x: int, heads: int, mask: int | None = None) -> int:
    width = net.spec(x).shape[-1]
    batch = net.spec(x).shape[0]
    length = net.spec(x).shape[1]
    q = _heads(net, dense(net, x, width), length, heads, 0, 2, 1, 3)
    k = _heads(net, dense(net, x, width), length, heads, 0, 2, 3, 1)
    v = _heads(net, dense(net, x, width), length, heads, 0, 2, 1, 3)
    scores = net.op(N.MUL_FUSION, net.op(N.MATMUL_FUSION, q, k), net.scalar((width // heads) ** -0.5))
    if mask is not None:
        scores = net.op(N.ADD_FUSION, scores, mask)
    mixed = net.op(N.MATMUL_FUSION, net.op(N.SOFTMAX, scores, axis=(-1,)), v)
    joined = net.op(N.RESHAPE, net.op(N.TRANSPOSE, mixed, net.ints(0, 2, 1, 3)), net.ints(batch, length, width))
    return dense(net, joined, width)


def attention(net: Net) -> Made:
    x = net.input(2, 5, 8)
    return net.graph(_attention(net, x, 2)), [[net.reals(2, 5, 8)], [net.reals(2, 5, 8)]]


def transformer_block(net: Net) -> Made:
    x = net.input(1, 6, 12)
    y = net.op(N.ADD_FUSION, x, _attention(net, norm(net, x), 3))
    inner = net.op(N.ACTIVATION, dense(net, norm(net, y), 24), activation_type=ActivationType.GELU)
    z = net.op(N.ADD_FUSION, y, dense(net, inner, 12))
    return net.graph(norm(net, z)), [[net.reals(1, 6, 12)], [net.reals(1, 6, 12)]]


def masked_attention(net: Net) -> Made:
    """Build causal attention, which masks later positions with minus infinity."""
    x = net.input(1, 4, 6)
    mask = net.constant(np.where(np.tri(4, dtype=np.bool_), 0, -np.inf).astype("f4"))
    return net.graph(_attention(net, x, 2, mask)), [[net.reals(1, 4, 6)]]


def dynamic_length(net: Net) -> Made:
    x = net.input(1, -1, 8)
    q, k, v = (dense(net, x, 8) for _ in range(3))
    scores = net.op(N.MATMUL_FUSION, q, k, transpose_b=True)
    mixed = net.op(N.MATMUL_FUSION, net.op(N.SOFTMAX, scores, axis=(-1,)), v)
    y = norm(net, net.op(N.ADD_FUSION, x, mixed))
    best = net.op(N.REDUCE_FUSION, y, net.ints(1), mode=ReduceMode.MAX)
    return net.graph(y, best), [[net.reals(1, length, 8)] for length in (3, 7, 1, 3)]


def dynamic_batch_and_length(net: Net) -> Made:
    ids, table = net.input(-1, -1, dtype="i4"), net.weights(11, 6, size=1)
    x = net.op(N.GATHER, table, ids, net.ints(0))
    y = net.op(N.ACTIVATION, dense(net, x, 6), activation_type=ActivationType.TANH)
    pooled = net.op(N.REDUCE_FUSION, y, net.ints(1), mode=ReduceMode.MEAN)
    runs = [[net.integers(0, 11, *shape)] for shape in ((2, 3), (1, 8), (4, 1), (2, 3))]
    return net.graph(net.op(N.SOFTMAX, dense(net, pooled, 3), axis=(1,)), pooled), runs


def embeddings(net: Net) -> Made:
    words, kinds = net.input(2, 5, dtype="i8"), net.input(2, 5, dtype="i4")
    x = net.op(N.GATHER, net.weights(13, 8, size=1), words, net.ints(0))
    y = net.op(N.GATHER, net.weights(2, 8, size=1), kinds, net.ints(0))
    places = net.constant(net.numbers.reals(-1, 1, (5, 8)).astype("f4"))
    total = net.op(N.ADD_FUSION, net.op(N.ADD_FUSION, x, y), places)
    mask = net.op(N.NOT_EQUAL, words, net.constant(np.array(0, "i8")))
    weight = net.op(N.CAST, net.op(N.EXPAND_DIMS, mask, net.ints(-1)), net.constant(np.array(11, "i4")))
    runs = [[net.integers(0, 13, 2, 5, dtype="i8"), net.integers(0, 2, 2, 5)] for _ in range(2)]
    return net.graph(norm(net, net.op(N.MUL_FUSION, total, weight))), runs


def text_convolution(net: Net) -> Made:
    """Build a convolution that treats a sequence as an image of one row."""
    x = net.input(2, 9, 4)
    image = net.op(N.UNSQUEEZE, x, axis=(1,))
    y = net.op(
        N.CONV2D_FUSION, image, net.weights(6, 1, 3, 4), net.weights(6), pad_mode=1, activation_type=ActivationType.RELU
    )
    best = net.op(N.REDUCE_FUSION, net.op(N.SQUEEZE, y, axis=(1,)), net.ints(1), mode=ReduceMode.MAX)
    return net.graph(best), [[net.reals(2, 9, 4)]]


def layer_norm_by_hand(net: Net) -> Made:
    """Build layer normalization from the nodes that exporters emit, which a compiler may fuse again."""
    x = net.input(3, 8)
    axis = net.ints(-1)
    centred = net.op(N.SUB_FUSION, x, net.op(N.REDUCE_FUSION, x, axis, keep_dims=True))
    variance = net.op(N.REDUCE_FUSION, net.op(N.SQUARE, centred), axis, keep_dims=True)
    spread = net.op(N.SQRT, net.op(N.ADD_FUSION, variance, net.scalar(2.0**-10)))
    y = net.op(N.DIV_FUSION, centred, spread)
    return net.graph(net.op(N.ADD_FUSION, net.op(N.MUL_FUSION, y, net.weights(8, size=1)), net.weights(8))), [
        [net.reals(3, 8)]
    ]


def gelu_by_hand(net: Net) -> Made:
    x = net.input(3, 8)
    inner = net.op(N.ERF, net.op(N.DIV_FUSION, x, net.scalar(2**0.5)))
    y = net.op(N.MUL_FUSION, net.op(N.MUL_FUSION, x, net.op(N.ADD_FUSION, inner, net.scalar(1))), net.scalar(0.5))
    cube = net.op(N.POW_FUSION, x, net.scalar(3))
    return net.graph(y, cube, net.op(N.ACTIVATION, x, activation_type=ActivationType.GELU)), [[net.reals(3, 8)]]


def rotary(net: Net) -> Made:
    """Build a rotary embedding: swap two halves and negate one."""
    x = net.input(1, 4, 6)
    left, right = net.ops(N.SPLIT, x, axis=2, output_num=2)
    turned = net.op(N.CONCAT, net.op(N.NEG, right), left, axis=2)
    angles = net.constant(net.numbers.reals(0, 3, (4, 6)).astype("f4"))
    y = net.op(
        N.ADD_FUSION,
        net.op(N.MUL_FUSION, x, net.op(N.COS, angles)),
        net.op(N.MUL_FUSION, turned, net.op(N.SIN, angles)),
    )
    return net.graph(y), [[net.reals(1, 4, 6)]]


def mixture(net: Net) -> Made:
    """Build a mixture that uses the best two of four experts."""
    x = net.input(3, 6)
    chances = net.op(N.SOFTMAX, dense(net, x, 4), axis=(1,))
    values, indices = net.ops(N.TOPK_FUSION, chances, net.ints(2))
    hot = net.op(N.ONE_HOT, indices, net.ints(4), net.scalar(1), net.scalar(0))
    share = net.op(N.MUL_FUSION, hot, net.op(N.UNSQUEEZE, values, axis=(2,)))
    gate = net.op(N.REDUCE_FUSION, share, net.ints(1), mode=ReduceMode.SUM)
    experts = net.op(N.STACK, *(dense(net, x, 5) for _ in range(4)), axis=1)
    mixed = net.op(N.MATMUL_FUSION, net.op(N.UNSQUEEZE, gate, axis=(1,)), experts)
    return net.graph(net.op(N.SQUEEZE, mixed, axis=(1,)), gate), [[net.reals(3, 6)]]


def log_likelihood(net: Net) -> Made:
    x, target = net.input(3, 5), net.input(3, dtype="i4")
    logs = net.op(N.LOG_SOFTMAX, x, axis=1)
    rows = net.constant(np.arange(3, dtype="i4").reshape(3, 1))
    places = net.op(N.CONCAT, rows, net.op(N.UNSQUEEZE, target, axis=(1,)), axis=1)
    picked = net.op(N.GATHER_ND, logs, places)
    return net.graph(net.op(N.NEG, net.op(N.REDUCE_FUSION, picked, net.ints(0)))), [
        [net.reals(3, 5), net.integers(0, 5, 3)] for _ in range(2)
    ]
