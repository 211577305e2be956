"""Graphs of one node, made for the operands at hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
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


def infer_all(
    node_type: NodeType, operands: Sequence[Pair], attrs: Mapping[str, Any], declared: tuple[TensorSpec, ...] = ()
) -> tuple[TensorSpec, ...]:
    """The specs of the outputs."""
    return infer_node(Node(node_type, (), (0,), attrs), operands, declared)


def infer(
    node_type: NodeType, operands: Sequence[Pair], attrs: Mapping[str, Any], declared: tuple[TensorSpec, ...] = ()
) -> TensorSpec:
    """The spec of the only output."""
    (output,) = infer_all(node_type, operands, attrs, declared)
    return output


def graph_of(node_type: NodeType, operands: Sequence[Pair], attrs: Mapping[str, Any], *outputs: TensorSpec) -> Graph:
    """A graph of one node: operands with elements are constants, the others its inputs."""
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


def prepare(graph: Graph, **config: Any) -> PreparedModel:
    return load_backend("reference").prepare(graph, ModelConfig(**config), lambda _: None)


def run_all(graph: Graph, arrays: Sequence[AnyArray]) -> list[AnyArray]:
    """The outputs, of the inputs."""
    return prepare(graph).run(arrays, Cancellation())


def run(graph: Graph, arrays: Sequence[AnyArray]) -> AnyArray:
    """The only output, of the inputs."""
    (output,) = run_all(graph, arrays)
    return output


def compute(
    node_type: NodeType,
    arrays: Sequence[AnyArray],
    attrs: Mapping[str, Any] | None = None,
    declared: tuple[TensorSpec, ...] = (),
) -> AnyArray:
    """The only output of a node whose operands are all constants."""
    operands = [(spec(array.shape, data_type_of(array.dtype)), array) for array in arrays]
    output = infer(node_type, operands, attrs or {}, declared)
    return run(graph_of(node_type, operands, attrs or {}, output), [])


def of(*values: Any, dtype: str = "f4") -> AnyArray:
    """An array of FLOAT32, or of another type."""
    return np.array(values, dtype)


def without_dims(operand: Pair, *axes: int) -> Pair:
    """The operand with dimensions (all, if none is named) that are not known."""
    shape = [-1 if not axes or axis in axes else dim for axis, dim in enumerate(operand[0].shape)]
    return replace(operand[0], shape=tuple(shape)), operand[1]
