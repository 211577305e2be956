"""Independence of rows in whole graphs: rows may be moved, reshaped and counted, and dependent rows are detected."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nnrt_client import DataType as ApiDataType
from nnrt_client import Model, ModelTensor, OperationType, TensorDesc
from nnrt_client.model.model import parts_of
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, Unsupported
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops.rows_apart import require_rows_apart
from nnrt_hdi.tensor import QuantParam, TensorSpec

from .single_node import prepare

AnyArray = NDArray[Any]
Built = Callable[["Net", ModelTensor], ModelTensor]


class Net(Model):
    """Model builder with the operations of these tests."""

    def reshape(self, x: ModelTensor, shape: Any, rank: int | None = None) -> ModelTensor:
        output = None if rank is None else TensorDesc(ApiDataType.FLOAT32, (-1,) * rank)
        return self.op(OperationType.RESHAPE, x, shape, output=output)

    def transpose(self, x: ModelTensor, *order: int) -> ModelTensor:
        return self.op(OperationType.TRANSPOSE, x, np.array(order, np.int64))

    def shape(self, x: ModelTensor) -> ModelTensor:
        return self.op(OperationType.SHAPE, x)

    def size(self, x: ModelTensor, axis: int) -> ModelTensor:
        """Return a dimension as a vector of one element."""
        return self.op(OperationType.GATHER, self.shape(x), np.array([axis], np.int32), np.array([0], np.int32))

    def numbers(self, *parts: ModelTensor | int) -> ModelTensor:
        given = [np.array([part], np.int32) if isinstance(part, int) else part for part in parts]
        return self.op(OperationType.CONCAT, *given, axis=0)

    def op(self, type_: OperationType, *operands: Any, **parameters: Any) -> ModelTensor:
        made = self.apply(type_, *operands, **parameters)
        assert isinstance(made, ModelTensor)
        return made


def graph_of(build: Built, shape: Sequence[int]) -> Graph:
    model = Net()
    x = model.input(tuple(shape), name="x")
    model.specify_inputs_and_outputs([x], [build(model, x)])
    model.finish()
    return parts_of(model).graph


def heads_folded_into_rows(m: Net, x: ModelTensor) -> ModelTensor:
    """Reshape [rows, length, 12] to [rows 3, length, 4] and back, as attention does with its heads."""
    split = m.transpose(m.reshape(x, [0, 0, 3, 4]), 0, 2, 1, 3)
    shape = m.numbers(m.op(OperationType.MUL, m.size(x, 0), np.array([3], np.int32)), m.size(x, 1), 4)
    heads = m.reshape(split, shape, 3)
    weights = m.op(OperationType.SOFTMAX, m.op(OperationType.MATMUL, heads, m.transpose(heads, 0, 2, 1)))
    mixed = m.reshape(m.op(OperationType.MATMUL, weights, heads), m.numbers(m.size(x, 0), 3, m.size(x, 1), 4), 4)
    return m.reshape(m.transpose(mixed, 0, 2, 1, 3), [0, 0, 12])


def steps_before_rows(m: Net, x: ModelTensor) -> ModelTensor:
    """Transpose and reshape [rows, length, 4] to [length rows, 4] and back, as torch's attention does for a product."""
    steps = m.transpose(x, 1, 0, 2)
    made = m.op(OperationType.FULL_CONNECTION, m.reshape(steps, [-1, 4]), _NUMBERS.reshape(4, 4), np.zeros(4, "f4"))
    return m.transpose(m.reshape(made, m.numbers(m.size(x, 1), m.size(x, 0), 4), 3), 1, 0, 2)


def token_for_each_row(m: Net, x: ModelTensor) -> ModelTensor:
    """Concatenate a constant in front of each row of x, like a class token."""
    token = m.op(OperationType.TILE, _NUMBERS.reshape(1, 4, 4)[:, :1], m.numbers(m.size(x, 0), 1, 1))
    return m.op(OperationType.CONCAT, token, x, axis=1)


def zeros_for_each_row(m: Net, x: ModelTensor) -> ModelTensor:
    zeros = m.op(OperationType.FILL, np.zeros(1, "f4"), m.numbers(m.size(x, 0), 1, 4))
    return m.op(OperationType.ADD, zeros, x)


def blocks_before_rows(m: Net, x: ModelTensor) -> ModelTensor:
    """Turn blocks of an image into images and back, as TensorFlow's atrous convolution does."""
    x = m.reshape(x, [-1, 2, 2, 4])
    blocks = m.op(OperationType.SPACE_TO_BATCH_ND, x, block_shape=[2, 2], paddings=[0, 0, 0, 0])
    return m.op(
        OperationType.BATCH_TO_SPACE_ND, m.op(OperationType.ABS, blocks), block_shape=[2, 2], crops=[0, 0, 0, 0]
    )


def flat(m: Net, x: ModelTensor) -> ModelTensor:
    return m.reshape(x, [-1, 16])


_NUMBERS = np.arange(16, dtype=np.float32)

APART: list[tuple[Built, tuple[int, ...]]] = [
    (heads_folded_into_rows, (-1, -1, 12)),
    (steps_before_rows, (-1, -1, 4)),
    (token_for_each_row, (-1, -1, 4)),
    (zeros_for_each_row, (-1, -1, 4)),
    (blocks_before_rows, (-1, 4, 4)),
    (flat, (-1, 4, 4)),
]


@pytest.mark.parametrize(("build", "shape"), APART, ids=lambda given: getattr(given, "__name__", ""))
def test_rows_come_apart_again(build: Built, shape: Sequence[int]) -> None:
    graph = graph_of(build, shape)
    require_rows_apart(graph)
    alone, joined = computed(graph, [4 if dim == -1 else dim for dim in shape[1:]])
    np.testing.assert_allclose(joined, np.concatenate(alone), rtol=1e-5)


def half_rows(m: Net, x: ModelTensor) -> ModelTensor:
    """Reshape rows of three to rows of two."""
    return m.op(OperationType.SOFTMAX, m.reshape(x, [-1, 2]))


def whole_length(m: Net, x: ModelTensor) -> ModelTensor:
    """Swap the rows and the length."""
    return m.op(OperationType.SOFTMAX, m.transpose(m.reshape(m.transpose(x, 1, 0), [0, -1]), 1, 0), axis=0)


def mean_of_rows(m: Net, x: ModelTensor) -> ModelTensor:
    return m.op(OperationType.SUB, x, m.op(OperationType.REDUCE_MEAN, x, [0], keep_dims=True))


def divided_by_rows(m: Net, x: ModelTensor) -> ModelTensor:
    count = m.op(OperationType.CAST, m.size(x, 0), np.array(int(ApiDataType.FLOAT32), np.int32))
    return m.op(OperationType.DIV, x, count)


def against_all_rows(m: Net, x: ModelTensor) -> ModelTensor:
    return m.op(OperationType.MATMUL, m.op(OperationType.MATMUL, x, m.transpose(x, 1, 0)), x)


def rows_from_behind(m: Net, x: ModelTensor) -> ModelTensor:
    return m.op(OperationType.STRIDED_SLICE, x, [-1, 0], [-9, 2], [-1, 1])


def few_rows(m: Net, x: ModelTensor) -> ModelTensor:
    """Limit the number of rows by arithmetic on the shape."""
    few = m.op(OperationType.MINIMUM, m.size(x, 0), np.array([1], np.int32))
    return m.reshape(x, m.numbers(few, -1), 2)


MIXED: list[tuple[Built, tuple[int, ...], str]] = [
    (
        half_rows,
        (-1, 3),
        "RESHAPE node 0 .*: whether dimension 0 of its shape has a whole number of entries for each row is not known",
    ),
    (whole_length, (-1, 3), "SOFTMAX node 3 .*: it adds up along dimension 0, which is that of the rows"),
    (mean_of_rows, (-1, 3), "REDUCE_FUSION node 0 .*: it folds dimension 0, which is that of the rows"),
    (divided_by_rows, (-1, 3), "CAST node 2 .*: x depends on how many rows there are"),
    (against_all_rows, (-1, 3), "MATMUL_FUSION node 1 .*: its operands have the rows in different places"),
    (rows_from_behind, (-1, 3), "STRIDED_SLICE node 0 .*: it takes a part of dimension 0, which is that of the rows"),
    (few_rows, (-1, 3), "MINIMUM node 2 .*: a depends on how many rows there are"),
]


@pytest.mark.parametrize(("build", "shape", "reason"), MIXED, ids=lambda given: getattr(given, "__name__", ""))
def test_mixed_rows_are_refused_with_the_place(build: Built, shape: Sequence[int], reason: str) -> None:
    graph = graph_of(build, shape)
    with pytest.raises(Unsupported, match=reason):
        require_rows_apart(graph)
    try:
        alone, joined = computed(graph, shape[1:])
    except InvalidParameter:
        return
    assert [part.shape for part in alone] != [(1, *joined.shape[1:]), (3, *joined.shape[1:])] or not np.allclose(
        np.concatenate(alone), joined
    )


def computed(graph: Graph, sizes: Sequence[int]) -> tuple[list[AnyArray], AnyArray]:
    """Compute runs of 1 and of 3 rows separately, and in one batch."""
    model = prepare(graph)
    rng = np.random.default_rng(5)
    runs = [rng.uniform(1, 3, (count, *sizes)).astype(np.float32) for count in (1, 3)]
    alone = [model.run([run], Cancellation())[0] for run in runs]
    return alone, model.run([np.concatenate(runs)], Cancellation())[0]


def of_nodes(specs: Sequence[TensorSpec], *nodes: Node, inputs: Sequence[int] = (0,), **constants: AnyArray) -> Graph:
    """Build a graph whose last tensor is the output; a constant named t1 is tensor 1."""
    data = {int(name[1:]): Constant.of(value) for name, value in constants.items()}
    return Graph(tuple(specs), nodes, tuple(inputs), (len(specs) - 1,), data)


def real(*shape: int) -> TensorSpec:
    return TensorSpec(DataType.FLOAT32, shape, name="x")


def test_inputs_and_outputs_have_the_rows_in_front() -> None:
    absolute = Node(NodeType.ABS, (0,), (1,))
    require_rows_apart(of_nodes([real(-1, 3), real(-1, 3)], absolute))
    for graph, reason in (
        (of_nodes([real(2, 3), real(2, 3)], absolute), r"tensor 0 'x': FLOAT32\[2, 3\] has no open dimension 0"),
        (of_nodes([real(), real()], absolute), r"tensor 0 'x': FLOAT32\[\] has no open dimension 0"),
        (of_nodes([real(-1), real(7), real(7)], Node(NodeType.ABS, (1,), (2,)), t1=np.ones(7, "f4")), "same for all"),
        (of_nodes([real(-1, 3), real(5, 3)], absolute), "is that of the rows, but fixed; leave it -1"),
    ):
        with pytest.raises(Unsupported, match=reason):
            require_rows_apart(graph)


def test_a_scale_for_each_row_is_refused() -> None:
    one, each = (QuantParam(0.5, 0),), tuple(QuantParam(scale, 0) for scale in (0.5, 0.25, 0.125))
    order, transpose = np.array([1, 0]), Node(NodeType.TRANSPOSE, (0, 1), (2,))
    tensors = [TensorSpec(DataType.INT8, (-1, 3), quant=one), TensorSpec(DataType.INT64, (2,))]
    with pytest.raises(Unsupported, match="quantization parameters for each entry of dimension 1"):
        require_rows_apart(of_nodes([*tensors, TensorSpec(DataType.INT8, (3, -1), quant=each)], transpose, t1=order))
    channels = TensorSpec(DataType.INT8, (-1, 3), quant=each)
    require_rows_apart(of_nodes([channels, channels], Node(NodeType.ABS, (0,), (1,))))


def copied_from_beyond(m: Net, x: ModelTensor) -> ModelTensor:
    """Reshape with a 0, computed at run time, that copies a dimension which x lacks."""
    nothing = m.op(OperationType.SUB, m.size(x, 1), m.size(x, 1))
    return m.reshape(x, m.numbers(m.size(x, 0), m.size(x, 1), nothing), 3)


def turned_by_what_a_run_computes(m: Net, x: ModelTensor) -> ModelTensor:
    nothing = m.op(OperationType.SUB, m.size(x, 1), m.size(x, 1))
    return m.op(OperationType.TRANSPOSE, x, m.numbers(nothing, nothing))


def cut_in_steps_of_none(m: Net, x: ModelTensor) -> ModelTensor:
    nothing = m.op(OperationType.SUB, m.size(x, 1), m.size(x, 1))
    two = TensorDesc(ApiDataType.INT32, (2,))
    shape = m.op(OperationType.STRIDED_SLICE, m.shape(x), [0], [2], nothing, output=two)
    return m.reshape(x, shape, 2)


@pytest.mark.parametrize("build", [copied_from_beyond, turned_by_what_a_run_computes, cut_in_steps_of_none])
def test_what_fails_in_every_run_may_be_judged_either_way(build: Built) -> None:
    graph = graph_of(build, (-1, -1))
    with suppress(Unsupported):
        require_rows_apart(graph)
    with pytest.raises(NnrtError):
        computed(graph, (2,))


def test_sizes_that_grow_without_end_are_refused() -> None:
    """For repeated squares the analysis still takes milliseconds."""
    count, steps = TensorSpec(DataType.INT64, (2,)), 40
    nodes = [Node(NodeType.SHAPE, (0,), (1,))]
    nodes += [Node(NodeType.MUL_FUSION, (at, at), (at + 1,)) for at in range(1, steps)]
    graph = of_nodes([real(-1, -1), *[count] * (steps - 1), count], *nodes)
    with pytest.raises(Unsupported, match=r"MUL_FUSION node .*: a depends on how many rows there are"):
        require_rows_apart(graph)
