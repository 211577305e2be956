"""Nodes that together are one operator of ONNX, which NNRt does not have.

What ONNX says with one operator takes NNRt several, as the importer writes them. ONNX Runtime has a fast kernel for the
one, or fuses it with its neighbours, so it is lowered as that one. A node in between that nobody else reads is not
lowered at all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from nnrt_backend_onnxruntime.blocked_weight import BlockedWeight
from nnrt_backend_onnxruntime.builder import FLOAT32, INT64, AnyArray, Onnx, Value
from nnrt_backend_onnxruntime.lowering.convolution import window_attributes
from nnrt_backend_onnxruntime.lowering.lowering import Call, as_given, channels_first
from nnrt_backend_onnxruntime.processor import IntegerKernels
from nnrt_backend_onnxruntime.resizing import Resizings
from nnrt_backend_onnxruntime.signedness import OFFSET
from nnrt_hdi.enums import ActivationType, DataType, Format, NodeType, ReduceMode
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.ops import OPERATORS

N = NodeType
# Of no node's operands, and in place of these.
MISSING = -1
NONE = (MISSING, MISSING, MISSING)
NOTHING = ActivationType.NO_ACTIVATION
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

    def __init__(self, graph: Graph, outputs: Sequence[int], integers: IntegerKernels) -> None:
        self._source = {tensor: at for at, node in enumerate(graph.nodes) for tensor in node.outputs}
        finder = _Finder(graph, self._source, integers)
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

    def __init__(self, graph: Graph, source: Mapping[int, int], integers: IntegerKernels) -> None:
        self._graph = graph
        self._kernels = integers
        self._source = source
        # Only positions that a run counts tell of sizes that it knows.
        is_counted = any(node.type is N.TOPK_FUSION for node in graph.nodes)
        self._resizings = Resizings(graph) if is_counted else None

    def found(self) -> Iterator[Composition]:
        patterns = {
            N.CAST: self._dynamic_quantization,
            N.MATMUL_FUSION: self._product,
            N.CONV2D_FUSION: self._integer_convolution,
            N.DEPTH_TO_SPACE: self._enlargement,
            N.GATHER: self._picked,
            N.ADD_FUSION: self._resized,
            N.TRANSPOSE: self._resized,
            N.SHAPE: self._shape,
            N.TOPK_FUSION: self._count,
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
        """The operands of the node that gives a tensor, if it is of this type and has no activation; else NONE."""
        node = self._node(tensor, node_type)
        if node is None or node.attrs.get("activation_type", NOTHING) != NOTHING:
            return NONE
        return node.inputs

    def _is(self, tensor: int, number: float) -> bool:
        """It is a constant of one number."""
        data = self._data(tensor)
        return data is not None and data.size == 1 and data.item() == number

    def _data(self, tensor: int) -> AnyArray | None:
        constant = self._graph.constants.get(tensor)
        return constant.data if constant is not None else None

    def _attrs(self, node: Node) -> SimpleNamespace:
        return SimpleNamespace(**OPERATORS[node.type].bind(node.attrs))

    def _have_type(self, data_type: DataType, *tensors: int) -> bool:
        return MISSING not in tensors and all(self._graph.tensors[at].data_type is data_type for at in tensors)

    # ---- DynamicQuantizeLinear

    def _dynamic_quantization(self, cast: Node) -> Composition | None:
        """y = clip(round(x / scale) + point, 0, 255), where scale and zero point follow from the range of x."""
        (y,) = cast.outputs
        rounded, shift, *_ = self._operands(self._clipped(cast.inputs[0]), N.ADD_FUSION)
        x, scale, *_ = self._operands(self._operands(rounded, N.ROUND)[0], N.DIV_FUSION)
        point = self._operands(shift, N.CAST)[0]
        if not self._have_type(DataType.UINT8, y, point) or not self._have_type(DataType.FLOAT32, x, scale, shift):
            return None
        low = self._low_end(x, scale)
        if low == MISSING or not self._is_point(point, low, scale) or self._graph.tensors[point].shape != ():
            return None
        return Composition((y, scale, point), (x,), lambda op, given: op.several("DynamicQuantizeLinear", 3, *given))

    def _clipped(self, tensor: int) -> int:
        """The tensor that is clipped to what UINT8 holds."""
        node = self._node(tensor, N.CLIP)
        if node is None:
            return MISSING
        attrs = self._attrs(node)
        return node.inputs[0] if (attrs.min, attrs.max) == (0, STEPS) else MISSING

    def _low_end(self, x: int, scale: int) -> int:
        """The lower end of the range of x and 0, if the scale is a 255th of the range."""
        condition, one, step = self._operands(scale, N.WHERE)
        if step == MISSING:
            step = scale
        elif not self._is(one, 1) or self._operands(condition, N.EQUAL)[0] != step:  # Of zeros only.
            return MISSING
        width, steps, *_ = self._operands(step, N.DIV_FUSION)
        high, low, *_ = self._operands(width, N.SUB_FUSION)
        ends = ((low, N.MINIMUM, ReduceMode.MIN), (high, N.MAXIMUM, ReduceMode.MAX))
        return low if self._is(steps, STEPS) and all(self._is_end(x, *end) for end in ends) else MISSING

    def _is_end(self, x: int, end: int, kind: NodeType, mode: ReduceMode) -> bool:
        """It is the least or largest of all elements of x, and 0."""
        extreme, zero, *_ = self._operands(end, kind)
        node = self._node(extreme, N.REDUCE_FUSION)
        if node is None or not self._is(zero, 0) or self._graph.tensors[extreme].shape != ():
            return False
        attrs = self._attrs(node)
        reads_x = x in (node.inputs[0], self._operands(node.inputs[0], N.RESHAPE)[0])
        return reads_x and attrs.mode is mode and not attrs.reduce_to_end

    def _is_point(self, point: int, low: int, scale: int) -> bool:
        """It is -low / scale, rounded."""
        rounded = self._operands(point, N.CAST)[0]
        exact = self._operands(rounded, N.ROUND)[0]
        clipped = self._clipped(exact)
        zero, steps, *_ = self._operands(exact if clipped == MISSING else clipped, N.SUB_FUSION)
        if steps != MISSING:
            return self._is(zero, 0) and self._operands(steps, N.DIV_FUSION)[:2] == (low, scale)
        height, divisor, *_ = self._operands(exact, N.DIV_FUSION)
        zero, subtracted, *_ = self._operands(height, N.SUB_FUSION)
        return self._is(zero, 0) and (subtracted, divisor) == (low, scale)

    # ---- MatMul with a factor, MatMulInteger, and MatMulNBits

    def _product(self, node: Node) -> Composition | None:
        attrs, (y,) = self._attrs(node), node.outputs
        if attrs.transpose_a or attrs.activation_type is not ActivationType.NO_ACTIVATION:
            return None
        if attrs.transpose_b:
            return self._product_of_blocks(node)
        if self._have_type(DataType.INT32, y):
            return self._integer_product(node)
        return self._scaled_product(node) if self._have_type(DataType.FLOAT32, y) else None

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
        x, factor, *_ = self._operands(tensor, N.MUL_FUSION)
        number = self._data(factor)
        if number is None or number.size != 1 or not self._have_type(DataType.FLOAT32, x, factor):
            return tensor, 1.0
        has_rank_of_x = number.ndim <= self._graph.tensors[x].rank
        return (x, float(number.item())) if has_rank_of_x else (tensor, 1.0)

    def _integer_product(self, node: Node) -> Composition | None:
        """The product of integers of 8 bits less their zero points, that of b constant."""
        a, b = node.inputs
        elements, point = self._less(a)
        narrow = self._operands(elements, N.CAST)[0]
        zero = MISSING if point == MISSING else self._operands(point, N.CAST)[0]
        weight = self._weight(b)
        if weight is None or not self._have_type(DataType.UINT8, narrow):
            return None
        if point == MISSING:
            return Composition(
                node.outputs, (narrow,), lambda op, given: [op.MatMulInteger(given[0], weight[0], None, weight[1])]
            )
        if not self._have_type(DataType.UINT8, zero) or self._graph.tensors[zero].shape != ():
            return None
        return Composition(
            node.outputs, (narrow, zero), lambda op, given: [op.MatMulInteger(given[0], weight[0], given[1], weight[1])]
        )

    def _less(self, tensor: int) -> tuple[int, int]:
        """Elements of INT32, and the zero point that is subtracted from them, if there is one."""
        elements, point, *_ = self._operands(tensor, N.SUB_FUSION)
        if elements == MISSING:
            return (tensor, MISSING) if self._have_type(DataType.INT32, tensor) else (MISSING, MISSING)
        return (elements, point) if self._have_type(DataType.INT32, elements, point) else (MISSING, MISSING)

    def _weight(self, tensor: int) -> tuple[AnyArray, AnyArray] | None:
        """A constant matrix of INT8, and its zero point."""
        elements, point = self._less(tensor)
        data = self._integers(elements)
        zero = np.zeros((), np.int32) if point == MISSING else self._integers(point)
        if data is None or zero is None or data.ndim != 2 or zero.size != 1 or zero.ndim > 2:
            return None
        number, limits = int(zero.item()), np.iinfo(np.int8)
        lowest, highest = min(int(data.min(initial=0)), number), max(int(data.max(initial=0)), number)
        for shift in (0, OFFSET):
            if limits.min <= lowest - shift and highest - shift <= limits.max:
                return (data.astype(np.int16) - shift).astype(np.int8), np.array(number - shift, np.int8)
        return None

    def _integers(self, tensor: int) -> AnyArray | None:
        """The elements of a constant of 8 bits that is cast, or of INT32."""
        narrow = self._operands(tensor, N.CAST)[0]
        data = self._data(tensor if narrow == MISSING else narrow)
        return data if data is not None and data.dtype in (np.int8, np.uint8, np.int32) else None

    def _product_of_blocks(self, node: Node) -> Composition | None:
        """The product with the transpose of a constant matrix of few bits, each block of whose rows has a scale and a
        zero point."""
        a, b = node.inputs
        real = self._operands(b, N.RESHAPE)[0]
        centered, scale, *_ = self._operands(real, N.MUL_FUSION)
        wide, point, *_ = self._operands(centered, N.SUB_FUSION)
        steps, scales, points = map(self._data, (self._operands(wide, N.CAST)[0], scale, point))
        if steps is None or scales is None or points is None:
            return None
        if not any(self._have_type(kind, a, wide, *node.outputs) for kind in (DataType.FLOAT32, DataType.FLOAT16)):
            return None
        weight = BlockedWeight.of(steps, scales, points)
        if weight is None or self._graph.tensors[b].shape != (weight.rows, weight.columns):
            return None
        return Composition(node.outputs, (a,), lambda op, given: [weight.product(op, given[0])])

    # ---- ConvInteger

    def _integer_convolution(self, node: Node) -> Composition | None:
        """The convolution of UINT8 less a zero point with constant integers: exact either way, and without groups
        faster so on processors that add products of 8 bits in 32."""
        x, weight, bias = node.inputs
        attrs, taps, added = self._attrs(node), self._data(weight), self._data(bias)
        if self._kernels.weights is not DataType.INT8 or attrs.group != 1 or taps is None or added is None:
            return None
        narrow, zero = self._less_zero(x)
        if narrow == MISSING or added.any() or attrs.activation_type != NOTHING or not _are_steps(taps):
            return None
        lowest = int(taps.min(initial=0))
        inputs, outputs = (tuple(self._graph.tensors[at] for at in side) for side in (node.inputs, node.outputs))
        call = Call(node.type, attrs, inputs, outputs, FLOAT32)

        def make(op: Onnx, given: Sequence[Value]) -> list[Value]:
            elements = op.constant((taps - lowest).astype(np.uint8))
            image, filters = channels_first(given[0], call.inputs[0]), channels_first(elements, call.inputs[1])
            points = given[1] if len(given) > 1 else None, np.array(-lowest, np.uint8)
            sums = op.ConvInteger(image, filters, *points, **window_attributes(call))
            return [as_given(sums.cast(FLOAT32), call.inputs[0])]

        return Composition(node.outputs, (narrow,) if zero == MISSING else (narrow, zero), make)

    def _less_zero(self, tensor: int) -> tuple[int, int]:
        """The UINT8 elements, and the zero point of the same type, of which a real tensor is the difference."""
        elements, point, *_ = self._operands(tensor, N.SUB_FUSION)
        narrow = self._operands(tensor if elements == MISSING else elements, N.CAST)[0]
        zero = self._operands(point, N.CAST)[0]
        if not self._have_type(DataType.UINT8, narrow):
            return MISSING, MISSING
        if elements == MISSING:
            return narrow, MISSING
        is_scalar = self._have_type(DataType.UINT8, zero) and self._graph.tensors[zero].shape == ()
        return (narrow, zero) if is_scalar else (MISSING, MISSING)

    # ---- Range

    def _count(self, node: Node) -> Composition | None:
        """0, 1, 2, ...: the order of as many equal numbers as are asked for."""
        equals, wanted = node.inputs
        number, shape, *_ = self._operands(equals, N.FILL)
        count = self._uncast(shape)
        if self._data(number) is None or count != self._uncast(wanted) or self._graph.tensors[equals].rank != 1:
            return None

        def make(op: Onnx, given: Sequence[Value]) -> list[Value]:
            numbers, size = given
            return [numbers, op.range(0, op.squeeze(op.reshape(size.cast(INT64), [1]), [0]), 1)]

        return Composition(node.outputs, (equals, count), make)

    def _uncast(self, x: int) -> int:
        """The size that x is a cast of, or x."""
        source = self._operands(x, N.CAST)[0]
        is_size = any(self._have_type(data_type, source) for data_type in (DataType.INT32, DataType.INT64))
        return source if is_size else x

    # ---- Resize

    def _enlargement(self, node: Node) -> Composition | None:
        """Each pixel repeated as a square: channels repeated, then laid out as blocks."""
        attrs = self._attrs(node)
        (repeated,), (y,) = node.inputs, node.outputs
        spec = self._graph.tensors[repeated]
        x, multiples, *_ = self._operands(repeated, N.TILE_FUSION)
        times = self._data(multiples)
        if (
            attrs.mode == "CRD"
            or times is None
            or self._graph.tensors[x].rank != 4
            or not self._are_alike(x, repeated, y)
        ):
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

    def _are_alike(self, *tensors: int) -> bool:
        """Images of one type that Resize takes, whose elements stand for the same numbers."""
        kinds = {(spec.data_type, spec.quant) for spec in map(self._graph.tensors.__getitem__, tensors)}
        return len(kinds) == 1 and next(iter(kinds))[0] in RESIZED

    def _picked(self, node: Node) -> Composition | None:
        return self._repetition(node) or self._resized(node)

    def _resized(self, node: Node) -> Composition | None:
        """An image resized to sizes that only a run knows."""
        (y,) = node.outputs
        resizing = self._resizings.of(y) if self._resizings else None
        if resizing is None or not self._are_alike(resizing.x, y):
            return None

        def make(op: Onnx, given: Sequence[Value]) -> list[Value]:
            image, measured, *sizes = given
            wanted: list[int | Value] = [op.size(measured, axis) for axis in range(4)]
            for axis, size in zip(resizing.sizes, sizes, strict=True):
                wanted[axis] = size
            for axis, factor in resizing.factors.items():
                wanted[axis] = wanted[axis] * factor
            return [op.Resize(image, None, None, op.vector(wanted), **resizing.how)]

        inputs = (resizing.x, self._as_it_came(resizing.x), *resizing.sizes.values())
        return Composition((y,), inputs, make)

    def _shape(self, node: Node) -> Composition | None:
        """The shape of what is dequantized, which is that of its elements: real numbers needn't be made for it."""
        elements = self._as_it_came(node.inputs[0])
        if elements == node.inputs[0]:
            return None
        return Composition(node.outputs, (elements,), lambda op, given: [op.sizes(given[0])])

    def _as_it_came(self, x: int) -> int:
        """The quantized tensor that x is made of; if there is none, x."""
        elements = self._operands(x, N.QUANT_DTYPE_CAST_V2)[0]
        return x if elements == MISSING else elements

    def _repetition(self, node: Node) -> Composition | None:
        """Each row repeated, and then each column: pixels of an image that are picked by constant positions."""
        second, first = self._repeated(node), self._repeated(self._node(node.inputs[0], N.GATHER))
        if first is None or second is None or {first[0], second[0]} not in ({1, 2}, {2, 3}):
            return None
        scales = np.ones(4, np.float32)
        for axis, count in (first, second):
            scales[axis] = count
        x = self._operands(node.inputs[0], N.GATHER)[0]
        if not self._are_alike(x, *node.inputs[:1], *node.outputs):
            return None
        return Composition(node.outputs, (x,), lambda op, given: [op.Resize(given[0], None, scales, **REPEATING)])

    def _repeated(self, gather: Node | None) -> tuple[int, int] | None:
        """The dimension of a tensor of rank 4 whose entries a GATHER repeats, and how often."""
        if gather is None:
            return None
        x, indices, axes = gather.inputs
        positions, axis, spec = self._data(indices), self._data(axes), self._graph.tensors[x]
        if positions is None or axis is None or positions.ndim != 1 or axis.size != 1:
            return None
        if spec.rank != 4:
            return None
        at = int(axis.item()) % 4
        size = spec.shape[at]
        count = positions.size // size if size > 0 else 0
        return (at, count) if count > 1 and np.array_equal(positions, np.repeat(np.arange(size), count)) else None


def _are_steps(numbers: AnyArray) -> bool:
    """They are integers, no farther apart, and from 0, than those of 8 bits."""
    lowest, highest = numbers.min(initial=0), numbers.max(initial=0)
    return bool(highest - lowest <= STEPS and np.array_equal(numbers, np.rint(numbers)))
