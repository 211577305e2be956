"""Graph structures: shared tensors, tensors read twice or never, and unusual inputs and outputs."""

from collections.abc import Iterator

import numpy as np

from nnrt_client.conformance.cases.graphs.net import Made, Net, Network
from nnrt_hdi.enums import ActivationType, NodeType, ReduceMode

N = NodeType
RELU = {"activation_type": ActivationType.RELU}


def networks() -> Iterator[Network]:
    """Yield the small graphs."""
    types = ("f4", "f2", "f8", "i4", "i8", "u1")
    yield Network("chain", chain, "arithmetic", dtypes=types)
    yield Network("diamond", diamond, "arithmetic", dtypes=types)
    yield Network("shared_constant", shared_constant, "arithmetic", dtypes=types)
    yield Network("same_operand_twice", same_operand_twice, "arithmetic", dtypes=types)
    yield Network("input_is_an_output", input_is_an_output, "arithmetic", dtypes=types)
    yield Network("constant_is_an_output", constant_is_an_output, "arithmetic")
    yield Network("outputs_along_the_way", outputs_along_the_way, "elementwise")
    yield Network("outputs_of_one_value", outputs_of_one_value, "shape")
    yield Network("unused_node", unused_node, "elementwise")
    yield Network("unused_input", unused_input, "elementwise")
    yield Network("unused_output_of_a_node", unused_output_of_a_node, "shape")
    yield Network("nodes_in_another_order", nodes_in_another_order, "arithmetic")
    yield Network("nothing_but_constants", nothing_but_constants, "arithmetic")
    yield Network("views_of_views", views_of_views, "shape")
    yield Network("in_place_would_be_wrong", in_place_would_be_wrong, "elementwise")
    yield Network("branches_joined", branches_joined, "shape")
    yield Network("shape_of_the_input", shape_of_the_input, "shape")
    yield Network("many_types", many_types, "elementwise")
    yield Network("masks", masks, "logic")
    yield Network("sorted_and_picked", sorted_and_picked, "indexing")
    yield Network("long_chain", long_chain, "elementwise", also_half=True)
    yield Network("wide", wide, "arithmetic")
    yield Network("scalars", scalars, "arithmetic")
    yield Network("empty_batch", empty_batch, "linear")
    yield Network("broadcasts", broadcasts, "arithmetic")


def chain(net: Net) -> Made:
    x = net.input(3, 5)
    y = net.op(N.ADD_FUSION, x, net.scalar(1))
    z = net.op(N.MUL_FUSION, y, net.scalar(3))
    return net.graph(net.op(N.SUB_FUSION, z, x)), [[_numbers(net, 3, 5)], [_numbers(net, 3, 5)]]


def diamond(net: Net) -> Made:
    x = net.input(4)
    left, right = net.op(N.ADD_FUSION, x, net.scalar(2)), net.op(N.MUL_FUSION, x, net.scalar(2))
    both = net.op(N.MAXIMUM, left, right)
    return net.graph(both, net.op(N.MINIMUM, left, both), right), [[_numbers(net, 4)]]


def shared_constant(net: Net) -> Made:
    x, c = net.input(2, 3), net.constant(net.numbers.array(1, 3, (3,), net.dtype))
    y = net.op(N.ADD_FUSION, x, c)
    return net.graph(net.op(N.MUL_FUSION, y, c), net.op(N.SUB_FUSION, c, y)), [[_numbers(net, 2, 3)]] * 2


def same_operand_twice(net: Net) -> Made:
    x = net.input(2, 3)
    y = net.op(N.MUL_FUSION, x, x)
    return net.graph(net.op(N.SUB_FUSION, y, y), net.op(N.ADD_FUSION, y, y)), [[_numbers(net, 2, 3)]]


def input_is_an_output(net: Net) -> Made:
    x, unread = net.input(3), net.input(2)
    y = net.op(N.ADD_FUSION, x, net.scalar(1))
    return net.graph(x, y, unread), [[_numbers(net, 3), _numbers(net, 2)]]


def constant_is_an_output(net: Net) -> Made:
    x, c = net.input(3), net.constant(np.array([1, 2, 3], "f4"))
    return net.graph(c, net.op(N.ADD_FUSION, x, c)), [[net.reals(3)], [net.reals(3)]]


def outputs_along_the_way(net: Net) -> Made:
    """Build a graph that outputs intermediate results, in another order than it computes them."""
    x = net.input(2, 7)
    a = net.op(N.ABS, x)
    b = net.op(N.SQRT, a)
    c = net.op(N.NEG, b)
    return net.graph(c, a, b), [[net.reals(2, 7)]]


def outputs_of_one_value(net: Net) -> Made:
    """Build a graph that outputs the unchanged elements of its input as several tensors."""
    x = net.input(2, 6)
    outputs = [
        net.op(N.RESHAPE, x, net.ints(3, 4)),
        net.op(N.RESHAPE, x, net.ints(12)),
        net.op(N.FLATTEN, x),
        net.op(N.ACTIVATION, x, activation_type=ActivationType.NO_ACTIVATION),
        net.op(N.UNSQUEEZE, x, axis=(0,)),
    ]
    return net.graph(*outputs), [[net.reals(2, 6)]]


def unused_node(net: Net) -> Made:
    x = net.input(4)
    net.op(N.EXPFUSION, net.op(N.NEG, x))
    return net.graph(net.op(N.ABS, x)), [[net.reals(4)]]


def unused_input(net: Net) -> Made:
    x, unread = net.input(4), net.input(2, 2)
    net.op(N.ABS, unread)
    return net.graph(net.op(N.NEG, x)), [[net.reals(4), net.reals(2, 2)]]


def unused_output_of_a_node(net: Net) -> Made:
    x = net.input(2, 6)
    _, middle, _ = net.ops(N.SPLIT, x, axis=1, output_num=3)
    values, _ = net.ops(N.TOPK_FUSION, x, net.ints(2))
    return net.graph(net.op(N.NEG, middle), values), [[net.reals(2, 6)]]


def nodes_in_another_order(net: Net) -> Made:
    x = net.input(3)
    a = net.op(N.ADD_FUSION, x, net.scalar(1))
    b = net.op(N.MUL_FUSION, a, x)
    graph = net.graph(net.op(N.SUB_FUSION, b, a))
    turned = type(graph)(graph.tensors, graph.nodes[::-1], graph.inputs, graph.outputs, graph.constants, graph.name)
    return turned, [[net.reals(3)]]


def nothing_but_constants(net: Net) -> Made:
    """Build a graph that computes only with constants, and has one input besides."""
    x = net.input(2)
    a, b = net.constant(np.array([1, 2, 3], "f4")), net.constant(np.array([4, 5, 6], "f4"))
    sums = net.op(N.REDUCE_FUSION, net.op(N.MUL_FUSION, a, b), net.ints(0), mode=ReduceMode.SUM)
    return net.graph(sums, net.op(N.ADD_FUSION, x, sums)), [[net.reals(2)]]


def views_of_views(net: Net) -> Made:
    x = net.input(4, 6)
    turned = net.op(N.TRANSPOSE, x, net.ints(1, 0))
    part = net.op(N.STRIDED_SLICE, turned, net.ints(5, 0), net.ints(-9, 4), net.ints(-2, 1))
    flat = net.op(N.RESHAPE, part, net.ints(2, 6))
    back = net.op(N.TRANSPOSE, flat, net.ints(1, 0))
    return net.graph(net.op(N.ADD_FUSION, back, net.scalar(1)), turned, part), [[net.reals(4, 6)]] * 2


def in_place_would_be_wrong(net: Net) -> Made:
    """Build a graph in which computing in place would overwrite a tensor that another node still reads."""
    x = net.input(3, 4)
    a = net.op(N.NEG, x)
    b = net.op(N.ABS, a)
    c = net.op(N.ADD_FUSION, b, a)
    d = net.op(N.MUL_FUSION, net.op(N.ADD_FUSION, a, net.scalar(1)), b)
    return net.graph(c, d, net.op(N.SUB_FUSION, d, x)), [[net.reals(3, 4)], [net.reals(3, 4)]]


def branches_joined(net: Net) -> Made:
    x = net.input(2, 3, 4)
    left = net.op(N.TRANSPOSE, x, net.ints(0, 2, 1))
    right = net.op(N.RESHAPE, x, net.ints(2, 4, 3))
    both = net.op(N.CONCAT, left, right, left, axis=1)
    parts = net.ops(N.SPLIT, both, axis=1, size_splits=(5, 7), output_num=2)
    return net.graph(net.op(N.STACK, *net.ops(N.UNSTACK, parts[0], axis=1), axis=0), parts[1]), [[net.reals(2, 3, 4)]]


def shape_of_the_input(net: Net) -> Made:
    x = net.input(2, 3)
    sizes = net.op(N.SHAPE, x)
    ones = net.op(N.FILL, net.scalar(1), sizes)
    return net.graph(net.op(N.ADD_FUSION, x, ones), sizes, net.op(N.RANK, x)), [[net.reals(2, 3)]]


def many_types(net: Net) -> Made:
    x = net.input(3, 4)
    whole = net.op(N.CAST, net.op(N.MUL_FUSION, x, net.scalar(50)), net.constant(np.array(4, "i4")))
    narrow = net.op(N.CAST, whole, net.constant(np.array(2, "i4")))
    large = net.op(N.CAST, narrow, net.constant(np.array(5, "i4")))
    back = net.op(N.CAST, net.op(N.MUL_FUSION, large, large), net.constant(np.array(11, "i4")))
    is_large = net.op(N.GREATER, back, net.scalar(900))
    half = net.op(N.CAST, x, net.constant(np.array(10, "i4")))
    return net.graph(whole, narrow, large, back, is_large, half), [[net.reals(3, 4)]]


def masks(net: Net) -> Made:
    x, y = net.input(4, 5), net.input(5)
    less = net.op(N.LESS, x, y)
    near = net.op(N.LESS_EQUAL, net.op(N.ABS, net.op(N.SUB_FUSION, x, y)), net.scalar(1))
    both = net.op(N.LOGICAL_AND, less, near)
    either = net.op(N.LOGICAL_OR, net.op(N.LOGICAL_NOT, less), near)
    chosen = net.op(N.WHERE, both, x, y)
    every = net.op(N.ALL, either, net.ints(1))
    return net.graph(chosen, both, every), [[net.reals(4, 5), net.reals(5)]] * 2


def sorted_and_picked(net: Net) -> Made:
    x = net.input(3, 9)
    values, indices = net.ops(N.TOPK_FUSION, x, net.ints(4))
    best = net.op(N.ARGMAX_FUSION, x)
    rows = net.constant(net.numbers.reals(-1, 1, (9, 2)).astype("f4"))
    picked = net.op(N.GATHER, rows, indices, net.ints(0))
    hot = net.op(N.ONE_HOT, best, net.ints(9), net.scalar(1), net.scalar(0))
    return net.graph(values, picked, net.op(N.MATMUL_FUSION, hot, rows)), [[net.reals(3, 9)], [net.reals(3, 9)]]


def long_chain(net: Net) -> Made:
    """Build a chain of forty nodes."""
    x = y = net.input(5, 7)
    for number in range(10):
        y = net.op(N.ADD_FUSION, y, net.scalar(number / 8))
        y = net.op(N.ACTIVATION, y, activation_type=ActivationType.TANH)
        y = net.op(N.MUL_FUSION, y, net.scalar(1.5))
        y = net.op(N.SUB_FUSION, y, x) if number % 3 == 2 else net.op(N.NEG, y)
    return net.graph(y), [[net.reals(5, 7)], [net.reals(5, 7)]]


def wide(net: Net) -> Made:
    """Build a graph of twenty inputs and ten outputs."""
    inputs = [net.input(3) for _ in range(20)]
    outputs = [net.op(N.SUB_FUSION, a, b) for a, b in zip(inputs[::2], inputs[1::2], strict=True)]
    return net.graph(*outputs[::-1]), [[net.reals(3) for _ in inputs]]


def scalars(net: Net) -> Made:
    x, y = net.input(), net.input()
    total = net.op(N.ADD_FUSION, x, y)
    row = net.op(N.EXPAND_DIMS, total, net.ints(0))
    return net.graph(net.op(N.MUL_FUSION, total, x), net.op(N.CONCAT, row, row)), [[net.reals(), net.reals()]]


def empty_batch(net: Net) -> Made:
    """Build a graph whose second run has no rows."""
    x = net.input(-1, 4)
    y = net.op(N.FULL_CONNECTION, x, net.weights(3, 4), net.weights(3), has_bias=True, **RELU)
    total = net.op(N.REDUCE_FUSION, y, net.ints(0), mode=ReduceMode.SUM)
    return net.graph(net.op(N.SOFTMAX, y), total), [[net.reals(2, 4)], [net.reals(0, 4)], [net.reals(2, 4)]]


def broadcasts(net: Net) -> Made:
    a, b, c = net.input(2, 1, 4), net.input(3, 1), net.input()
    y = net.op(N.MUL_FUSION, net.op(N.ADD_FUSION, a, b), c)
    z = net.op(N.MAXIMUM, y, a)
    tall = net.op(N.BROADCAST_TO, b, shape=(2, 3, 4))
    return net.graph(z, net.op(N.SQUARED_DIFFERENCE, tall, y)), [[net.reals(2, 1, 4), net.reals(3, 1), net.reals()]]


def _numbers(net: Net, *shape: int) -> np.ndarray:
    return net.numbers.array(0, 5, shape, net.dtype)
