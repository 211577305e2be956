"""Graphs of several nodes, built node by node."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_hdi.enums import DataType, Format, NodeType, PadMode
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops import infer_node
from nnrt_hdi.tensor import QuantParam, Shape, TensorSpec, data_type_of

AnyArray = NDArray[Any]
FLOAT32 = DataType.FLOAT32


class Net:
    """Graph under construction; the methods take and return indices of tensors."""

    def __init__(self, layout: Format = Format.NHWC, seed: int = 0) -> None:
        self.layout = layout
        self.random = np.random.default_rng(seed)
        self.tensors: list[TensorSpec] = []
        self.nodes: list[Node] = []
        self.inputs: list[int] = []
        self.constants: dict[int, Constant] = {}

    def spec(self, shape: Shape, data_type: DataType = FLOAT32, quant: tuple[QuantParam, ...] = ()) -> TensorSpec:
        layout = self.layout if len(shape) == 4 else Format.NONE
        return TensorSpec(data_type, tuple(shape), layout, quant)

    def input(self, *shape: int, data_type: DataType = FLOAT32, quant: tuple[QuantParam, ...] = ()) -> int:
        self.inputs.append(self._tensor(self.spec(shape, data_type, quant)))
        return self.inputs[-1]

    def constant(self, array: AnyArray, quant: tuple[QuantParam, ...] = ()) -> int:
        at = self._tensor(self.spec(array.shape, data_type_of(array.dtype), quant))
        self.constants[at] = Constant.of(array)
        return at

    def weights(self, *shape: int) -> int:
        return self.constant(self.random.standard_normal(shape).astype(np.float32))

    def op(self, node_type: NodeType, *inputs: int, outputs: Sequence[TensorSpec] = (), **attrs: Any) -> int:
        """Add a node, and return the index of its first output.

        Without `outputs` the node has one output, whose shape is inferred. A given spec needs the right rank only.
        """
        declared = outputs or [self._inferred(node_type, inputs, attrs)]
        made = [self._tensor(spec) for spec in declared]
        self.nodes.append(Node(node_type, inputs, tuple(made), attrs))
        return made[0]

    def conv(self, x: int, channels: int, kernel: int = 3, **attrs: Any) -> int:
        spec = self.tensors[x]
        size = (channels, kernel, kernel, spec.shape[spec.channel_axis])
        if self.layout is Format.NCHW:
            size = size[0], size[3], kernel, kernel
        attrs = {"pad_mode": PadMode.SAME, **attrs}
        return self.op(NodeType.CONV2D_FUSION, x, self.weights(*size), self.weights(channels), **attrs)

    def graph(self, *outputs: int) -> Graph:
        return Graph(tuple(self.tensors), tuple(self.nodes), tuple(self.inputs), outputs, self.constants)

    def _tensor(self, spec: TensorSpec) -> int:
        self.tensors.append(spec)
        return len(self.tensors) - 1

    def _inferred(self, node_type: NodeType, inputs: Sequence[int], attrs: Any) -> TensorSpec:
        constants = (self.constants.get(at) for at in inputs)
        values = (constant.shape_value if constant else None for constant in constants)
        operands = list(zip((self.tensors[at] for at in inputs), values, strict=True))
        (spec,) = infer_node(Node(node_type, (), (0,), attrs), operands)
        return spec
