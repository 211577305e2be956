"""Nodes that together are one operator of ONNX, which NNRt does not have.

What ONNX says with one operator takes NNRt several, as the importer writes them. ONNX Runtime has a fast kernel for the
one, or fuses it with its neighbours, so it is lowered as that one. A node in between that nobody else reads is not
lowered at all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from nnrt_backend_onnxruntime.builder import FLOAT32, AnyArray, Onnx, Value
from nnrt_backend_onnxruntime.lowering.lowering import as_given, channels_first
from nnrt_backend_onnxruntime.signedness import OFFSET
from nnrt_hdi.enums import ActivationType, DataType, Format, NodeType, ReduceMode
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.ops import OPERATORS

N = NodeType
# The largest UINT8.
STEPS = 255
# What ONNX Runtime's Resize takes.
RESIZED = frozenset({DataType.FLOAT32, DataType.FLOAT16, DataType.INT32, DataType.INT8, DataType.UINT8})
# A resizing that takes the pixel whose block a new one is in.
REPEATING = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}

Make = Callable[[Onnx, Sequence[Value]], Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Composition:
    """The tensors that it computes, of which others, and how."""

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    make: Make


class Compositions:
    """The compositions of a graph by the nodes that give their outputs, and the nodes that are still needed."""

    def __init__(self, graph: Graph, outputs: Sequence[int]) -> None:
        self._source = {tensor: at for at, node in enumerate(graph.nodes) for tensor in node.outputs}
        finder = _Finder(graph, self._source)
        self.by_node: dict[int, Composition] = {}
        for composition in finder.found():
            for tensor in composition.outputs:
                self.by_node.setdefault(self._source[tensor], composition)
        self.needed = self._needed(graph, outputs)

    def _needed(self, graph: Graph, outputs: Sequence[int]) -> frozenset[int]:
        """The nodes that outputs depend on."""
        found: set[int] = set()
        waiting = [self._source[tensor] for tensor in outputs if tensor in self._source]
        while waiting:
            at = waiting.pop()
            if at in found:
                continue
            found.add(at)
            reads = self.by_node[at].inputs if at in self.by_node else graph.nodes[at].inputs
            waiting += [self._source[tensor] for tensor in reads if tensor in self._source]
        return frozenset(found)


class _Finder:
    """The patterns."""

    def __init__(self, graph: Graph, source: Mapping[int, int]) -> None:
        self._graph = graph
        self._source = source

    def found(self) -> Iterator[Composition]:
        patterns = {
            N.CAST: self._dynamic_quantization,
            N.MATMUL_FUSION: self._product,
            N.DEPTH_TO_SPACE: self._enlargement,
            N.GATHER: self._repetition,
        }
        for node in self._graph.nodes:
            if (pattern := patterns.get(node.type)) and (composition := pattern(node)):
                yield composition

    # ---- what tensors are made of

    def _node(self, tensor: int, *types: NodeType) -> Node | None:
        """The node that gives a tensor, if it is of such a type."""
        at = self._source.get(tensor)
        node = None if at is None else self._graph.nodes[at]
        return node if node is not None and node.type in types else None

    def _operands(self, tensor: int, node_type: NodeType) -> tuple[int, ...]:
        """The operands of the node of this type that gives a tensor; as many impossible ones if there is none."""
        node = self._node(tensor, node_type)
        return node.inputs if node is not None else (-1,) * 3

    def _behind(self, tensor: int, *types: NodeType) -> int:
        """The tensor from which nodes of these types, of one tensor each, make this one."""
        while (node := self._node(tensor, *types)) is not None:
            tensor = node.inputs[0]
        return tensor

    def _is(self, tensor: int, number: float) -> bool:
        """It is a constant of one number."""
        data = self._data(tensor)
        return data is not None and data.size == 1 and data.item() == number

    def _data(self, tensor: int) -> AnyArray | None:
        constant = self._graph.constants.get(tensor)
        return constant.data if constant is not None else None

    def _attrs(self, node: Node) -> SimpleNamespace:
        return SimpleNamespace(**OPERATORS[node.type].bind(node.attrs))

    def _has_type(self, tensor: int, data_type: DataType) -> bool:
        return tensor >= 0 and self._graph.tensors[tensor].data_type is data_type

    # ---- DynamicQuantizeLinear

    def _dynamic_quantization(self, cast: Node) -> Composition | None:
        """y = clamp(round(x / scale) + point), where the scale and the zero point follow from the range of x."""
        (y,) = cast.outputs
        total = self._behind(cast.inputs[0], N.CLIP)
        if not self._has_type(y, DataType.UINT8) or self._node(total, N.ADD_FUSION) is None:
            return None
        rounded, shift = self._operands(total, N.ADD_FUSION)[:2]
        x, scale, *_ = self._operands(self._behind(rounded, N.ROUND), N.DIV_FUSION)
        point = self._operands(shift, N.CAST)[0]
        if not self._has_type(point, DataType.UINT8) or not self._has_type(x, DataType.FLOAT32):
            return None
        low = self._low_end(x, scale)
        if low is None or not self._is_point(point, low, scale):
            return None
        return Composition((y, scale, point), (x,), lambda op, given: op.several("DynamicQuantizeLinear", 3, *given))

    def _low_end(self, x: int, scale: int) -> int | None:
        """The lower end of the range of x and 0, if the scale makes 255 steps of that."""
        _, _, step = self._operands(scale, N.WHERE)  # 1 where it would be 0.
        width, steps, *_ = self._operands(scale if step < 0 else step, N.DIV_FUSION)
        high, low, *_ = self._operands(width, N.SUB_FUSION)
        ends = ((low, N.MINIMUM, ReduceMode.MIN), (high, N.MAXIMUM, ReduceMode.MAX))
        return low if self._is(steps, STEPS) and all(self._is_end(x, *end) for end in ends) else None

    def _is_end(self, x: int, end: int, kind: NodeType, mode: ReduceMode) -> bool:
        extreme, zero, *_ = self._operands(end, kind)
        node = self._node(extreme, N.REDUCE_FUSION)
        if node is None or self._attrs(node).mode is not mode or not self._is(zero, 0):
            return False
        reads_x = x in (node.inputs[0], self._operands(node.inputs[0], N.RESHAPE)[0])
        return reads_x and self._graph.tensors[extreme].shape in ((), (1,))

    def _is_point(self, point: int, low: int, scale: int) -> bool:
        """It is -low / scale, rounded."""
        real = self._behind(self._operands(point, N.CAST)[0], N.ROUND, N.CLIP)
        zero, steps, *_ = self._operands(real, N.SUB_FUSION)
        if steps >= 0:
            return self._is(zero, 0) and self._operands(steps, N.DIV_FUSION)[:2] == (low, scale)
        height, divisor, *_ = self._operands(real, N.DIV_FUSION)
        return divisor == scale and self._operands(height, N.SUB_FUSION)[1:2] == (low,)

    # ---- MatMul with a factor, and MatMulInteger

    def _product(self, node: Node) -> Composition | None:
        attrs, (y,) = self._attrs(node), node.outputs
        if attrs.transpose_a or attrs.transpose_b or attrs.activation_type is not ActivationType.NO_ACTIVATION:
            return None
        if self._has_type(y, DataType.INT32):
            return self._integer_product(node)
        return self._scaled_product(node) if self._has_type(y, DataType.FLOAT32) else None

    def _scaled_product(self, node: Node) -> Composition | None:
        """The product of matrices that numbers multiply, neither constant: those of attention.

        Behind it ONNX Runtime takes the numbers along, but not through transposes. In front of a constant matrix they
        are a part of what else it fuses, such as GELU.
        """
        (a, left), (b, right) = map(self._scaled, node.inputs)
        if (a, b) == node.inputs or not self._graph.constants.keys().isdisjoint(node.inputs):
            return None

        def make(op: Onnx, given: Sequence[Value]) -> list[Value]:
            first, second = (value.cast(FLOAT32) for value in given)
            return [op.MatMul(first, second) * (left * right)]

        return Composition(node.outputs, (a, b), make)

    def _scaled(self, tensor: int) -> tuple[int, float]:
        """A tensor, and the number by which a node multiplies it; 1 if none does."""
        node = self._node(tensor, N.MUL_FUSION)
        if node is None or self._attrs(node).activation_type is not ActivationType.NO_ACTIVATION:
            return tensor, 1.0
        x, factor = node.inputs
        number, rank = self._data(factor), self._graph.tensors[factor].rank
        if number is None or number.size != 1 or rank > self._graph.tensors[x].rank:
            return tensor, 1.0
        return (x, float(number.item())) if self._has_type(x, DataType.FLOAT32) else (tensor, 1.0)

    def _integer_product(self, node: Node) -> Composition | None:
        """The product of integers of 8 bits less their zero points, that of b constant."""
        (a, b), (y,) = node.inputs, node.outputs
        elements, point = self._less(a)
        narrow = self._operands(elements, N.CAST)[0]
        zero = self._operands(point, N.CAST)[0] if point is not None else None
        weight = self._weight(b)
        if not self._has_type(narrow, DataType.UINT8) or weight is None:
            return None
        if zero is not None and not (self._has_type(zero, DataType.UINT8) and self._graph.tensors[zero].shape == ()):
            return None
        return Composition(
            (y,),
            (narrow,) if zero is None else (narrow, zero),
            lambda op, given: [
                op.MatMulInteger(given[0], weight[0], given[1] if zero is not None else None, weight[1])
            ],
        )

    def _less(self, tensor: int) -> tuple[int, int | None]:
        """Elements, and the zero point that is subtracted from them, if there is one."""
        node = self._node(tensor, N.SUB_FUSION)
        return (tensor, None) if node is None else (node.inputs[0], node.inputs[1])

    def _weight(self, tensor: int) -> tuple[AnyArray, AnyArray] | None:
        """A constant matrix of INT8, and its zero point; None if there is none."""
        elements, point = self._less(tensor)
        data = self._data(self._behind(elements, N.CAST))
        zero = np.zeros((), np.int32) if point is None else self._data(self._behind(point, N.CAST))
        if data is None or zero is None or data.ndim != 2 or zero.size != 1:
            return None
        number, limits = int(zero.item()), np.iinfo(np.int8)
        lowest, highest = int(data.min(initial=number)), int(data.max(initial=number))
        for shift in (0, OFFSET):
            if limits.min <= lowest - shift and highest - shift <= limits.max:
                return (data.astype(np.int16) - shift).astype(np.int8), np.array(number - shift, np.int8)
        return None

    # ---- Resize

    def _enlargement(self, node: Node) -> Composition | None:
        """Each pixel repeated as a square: channels repeated, then laid out as blocks."""
        attrs = self._attrs(node)
        (repeated,), (y,) = node.inputs, node.outputs
        spec = self._graph.tensors[repeated]
        x, multiples, *_ = self._operands(repeated, N.TILE_FUSION)
        times = self._data(multiples)
        if attrs.mode == "CRD" or times is None or spec.data_type not in RESIZED or self._graph.tensors[x].rank != 4:
            return None
        channels = 1 if spec.format is Format.NCHW else 3
        wanted = [attrs.block_size**2 if axis == channels else 1 for axis in range(4)]
        if times.reshape(-1).tolist() != wanted or self._attrs(self._graph.nodes[self._source[repeated]]).dims:
            return None
        scales = np.array([1, 1, attrs.block_size, attrs.block_size], np.float32)

        def make(op: Onnx, given: Sequence[Value]) -> list[Value]:
            image = channels_first(given[0], spec)
            return [as_given(op.Resize(image, None, scales, **REPEATING), spec)]

        return Composition((y,), (x,), make)

    def _repetition(self, node: Node) -> Composition | None:
        """Each row repeated, and then each column: pixels of an image that are picked by constant positions."""
        second, first = self._repeated(node), self._repeated(self._node(node.inputs[0], N.GATHER))
        if first is None or second is None or {first[0], second[0]} not in ({1, 2}, {2, 3}):
            return None
        scales = np.ones(4, np.float32)
        for axis, count in (first, second):
            scales[axis] = count
        x = self._operands(node.inputs[0], N.GATHER)[0]
        return Composition(node.outputs, (x,), lambda op, given: [op.Resize(given[0], None, scales, **REPEATING)])

    def _repeated(self, gather: Node | None) -> tuple[int, int] | None:
        """The dimension of a tensor of rank 4 whose entries a GATHER repeats, and how often."""
        if gather is None:
            return None
        x, indices, axes = gather.inputs
        positions, axis, spec = self._data(indices), self._data(axes), self._graph.tensors[x]
        if positions is None or axis is None or positions.ndim != 1 or axis.size != 1:
            return None
        if spec.rank != 4 or spec.data_type not in RESIZED:
            return None
        at = int(axis.item()) % 4
        size = spec.shape[at]
        count = positions.size // size if size > 0 else 0
        return (at, count) if count > 1 and np.array_equal(positions, np.repeat(np.arange(size), count)) else None
