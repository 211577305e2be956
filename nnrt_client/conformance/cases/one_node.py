"""Graphs of one node for given operands."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from nnrt_client.conformance.cases.sample import Sample
from nnrt_hdi.enums import DataType, Format, NodeType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops import infer_node
from nnrt_hdi.tensor import UNKNOWN_DIM, TensorSpec, data_type_of

AnyArray = NDArray[Any]
# Operand for inference: its spec, and its elements if it is a constant.
Pair = tuple[TensorSpec, AnyArray | None]


def spec(shape: Sequence[int], data_type: DataType = DataType.FLOAT32, layout: Format = Format.NONE) -> TensorSpec:
    """Return a tensor spec; FLOAT32 is the default type."""
    return TensorSpec(data_type, tuple(shape), layout)


def pairs(sample: Sample, arrays: Sequence[AnyArray]) -> list[Pair]:
    """Return the operands of a sample as pairs of spec and elements, which are None unless the operand is constant."""
    return [
        (
            spec(array.shape, data_type_of(array.dtype), sample.layout_of(array)),
            array if sample.is_constant(index) else None,
        )
        for index, array in enumerate(arrays)
    ]


def infer_all(
    node_type: NodeType, operands: Sequence[Pair], attrs: Mapping[str, Any], declared: tuple[TensorSpec, ...] = ()
) -> tuple[TensorSpec, ...]:
    """Infer the specs of a node's outputs. Raises InvalidParameter."""
    return infer_node(Node(node_type, (), (0,), attrs), operands, declared)


def graph_of(node_type: NodeType, operands: Sequence[Pair], attrs: Mapping[str, Any], *outputs: TensorSpec) -> Graph:
    """Return a graph of one node: operands with elements become constants, the others inputs."""
    results = outputs or infer_all(node_type, operands, attrs)
    count = len(operands)
    written = tuple(range(count, count + len(results)))
    return Graph(
        tensors=(*(operand for operand, _ in operands), *results),
        nodes=(Node(node_type, tuple(range(count)), written, attrs),),
        inputs=tuple(index for index, (_, value) in enumerate(operands) if value is None),
        outputs=written,
        constants={index: Constant.of(value) for index, (_, value) in enumerate(operands) if value is not None},
    )


def without_dims(operand: Pair, *axes: int) -> Pair:
    """Return the operand with unknown dimensions at these axes, or at all axes if none is given."""
    shape = [UNKNOWN_DIM if not axes or axis in axes else dim for axis, dim in enumerate(operand[0].shape)]
    return replace(operand[0], shape=tuple(shape)), operand[1]


def known_graph(sample: Sample) -> Graph:
    """Return the graph of a sample with every dimension known."""
    return graph_of(sample.node_type, pairs(sample, sample.arrays()), sample.attrs)


def constant_graph(sample: Sample) -> Graph:
    """Return the graph of a sample in which only the first input stays an input; the other operands are constants."""
    arrays = sample.arrays()
    operands = pairs(sample, arrays)
    first = next(at for at in range(len(arrays)) if not sample.is_constant(at))
    constant = [pair if at == first else (pair[0], arrays[at]) for at, pair in enumerate(operands)]
    return graph_of(sample.node_type, constant, sample.attrs)


def dynamic_graph(sample: Sample, *, keeps_channels: bool = False, keeps_all_but_first: bool = False) -> Graph:
    """Return the graph of a sample in which no dimension of an input or output is known.

    With `keeps_channels` only batch, height and width of the first operand are unknown, with `keeps_all_but_first` only
    its first dimension. Raises InvalidParameter if inference needs a known dimension.
    """
    operands = pairs(sample, sample.arrays())
    known = infer_all(sample.node_type, operands, sample.attrs)
    if keeps_channels or keeps_all_but_first:
        (x, value), *others = operands
        if value is not None or (keeps_channels and x.format is Format.NONE) or not x.rank:
            raise InvalidParameter("it has no such dimensions")
        axes = [axis for axis in range(x.rank) if axis != x.channel_axis] if keeps_channels else [0]
        dynamic = [without_dims((x, None), *axes), *others]
    else:
        dynamic = [pair if pair[1] is not None else without_dims(pair) for pair in operands]
    infer_all(sample.node_type, dynamic, sample.attrs)
    outputs = [replace(output, shape=(UNKNOWN_DIM,) * output.rank) for output in known]
    return graph_of(sample.node_type, dynamic, sample.attrs, *outputs)
