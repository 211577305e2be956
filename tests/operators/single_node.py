"""Graphs of one node, made for the operands at hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel, load_backend
from nnrt_hdi.enums import DataType, Format, NodeType
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops import infer_node
from nnrt_hdi.tensor import TensorSpec, data_type_of

from .samples import Sample

AnyArray = NDArray[Any]
Pair = tuple[TensorSpec, AnyArray | None]


def spec(shape: Sequence[int], data_type: DataType = DataType.FLOAT32, layout: Format = Format.NONE) -> TensorSpec:
    return TensorSpec(data_type, tuple(shape), layout)


def pairs(sample: Sample, arrays: Sequence[AnyArray]) -> list[Pair]:
    """Operands as inference takes them: specs, and the elements of constants."""
    return [
        (
            spec(array.shape, data_type_of(array.dtype), sample.layout_of(array)),
            array if sample.is_constant(index) else None,
        )
        for index, array in enumerate(arrays)
    ]


def infer(
    node_type: NodeType, operands: Sequence[Pair], attrs: Mapping[str, Any], declared: tuple[TensorSpec, ...] = ()
) -> TensorSpec:
    """The spec of the only output."""
    (output,) = infer_node(Node(node_type, (), (0,), attrs), operands, declared)
    return output


def graph_of(
    node_type: NodeType, operands: Sequence[Pair], attrs: Mapping[str, Any], output: TensorSpec | None = None
) -> Graph:
    """A graph of one node: operands with elements are constants, the others its inputs."""
    count = len(operands)
    result = output or infer(node_type, operands, attrs)
    return Graph(
        tensors=(*(operand for operand, _ in operands), result),
        nodes=(Node(node_type, tuple(range(count)), (count,), attrs),),
        inputs=tuple(index for index, (_, value) in enumerate(operands) if value is None),
        outputs=(count,),
        constants={index: Constant.of(value) for index, (_, value) in enumerate(operands) if value is not None},
    )


def prepare(graph: Graph, **config: Any) -> PreparedModel:
    return load_backend("reference").prepare(graph, ModelConfig(**config), lambda _: None)


def run(graph: Graph, arrays: Sequence[AnyArray]) -> AnyArray:
    """The only output, of the inputs."""
    (output,) = prepare(graph).run(arrays, Cancellation())
    return output


def without_dims(operand: Pair, *axes: int) -> Pair:
    """The operand with dimensions (all, if none is named) that are not known."""
    shape = [-1 if not axes or axis in axes else dim for axis, dim in enumerate(operand[0].shape)]
    return replace(operand[0], shape=tuple(shape)), operand[1]
