"""Images that a graph resizes by arithmetic, because only a run knows the new size.

ONNX has one operator for it, Resize. NNRt's RESIZE fixes the size when a model is built. So the importer writes nodes
that compute the number of pixels, their positions in x and the weights of their neighbours, for one dimension after the
other. This module recognizes a resizing: it writes the same calculation again, and compares it with the graph node by
node.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.tensor import UNKNOWN_DIM, data_type_of

N = NodeType
# The number of a calculation that the graph doesn't contain.
NOWHERE = -1
# The nodes that compute positions and weights.
ARITHMETIC = frozenset(
    {
        *(N.ADD_FUSION, N.SUB_FUSION, N.MUL_FUSION, N.DIV_FUSION, N.MINIMUM, N.MAXIMUM, N.FLOOR, N.CEIL, N.CAST),
        *(N.FILL, N.TOPK_FUSION, N.LESS, N.WHERE, N.SHAPE, N.GATHER, N.RESHAPE, N.UNSQUEEZE, N.TRANSPOSE),
    }
)
# Constants with more elements are not compared.
FEW = 8
COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_half_pixel_for_nn")
ROUNDINGS = ("floor", "round_prefer_floor", "round_prefer_ceil", "ceil")
ROWS, COLUMNS = 2, 3
SWAPPED = (0, 1, 3, 2)
# The most nodes between the picked pixels and the indices 0, 1, 2, ... of the new ones.
LONGEST_WAY = 20


@dataclass(frozen=True, slots=True)
class Resizing:
    """Image x whose rows, columns or both are resized.

    `sizes` has the tensor of the new size, `factors` the integer factor, each by dimension. `how` are Resize's
    attributes.
    """

    x: int
    sizes: dict[int, int]
    factors: dict[int, int]
    how: dict[str, str]

    @property
    def dimensions(self) -> frozenset[int]:
        return frozenset({*self.sizes, *self.factors})


class Resizings:
    """Resizings of a graph, by their result."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._source = {tensor: node for node in graph.nodes for tensor in node.outputs}
        self._calculations = _Calculations(graph)

    def find(self, tensor: int) -> Resizing | None:
        """Return the resizing whose result is a tensor. Rows and columns that are resized alike become one resizing."""
        last = self._find_one_dimension(tensor)
        if last is None or not (first := self._find_one_dimension(last.x)):
            return last
        if first.how != last.how or first.dimensions & last.dimensions:
            return last
        return Resizing(first.x, {**first.sizes, **last.sizes}, {**first.factors, **last.factors}, first.how)

    def _find_one_dimension(self, tensor: int) -> Resizing | None:
        if self._graph.tensors[tensor].rank != 4:
            return None
        turned = self._swapped(tensor)
        if turned is None:
            return self._find_along_rows(tensor, turned=False)
        return self._find_along_rows(turned, turned=True)

    def _swapped(self, tensor: int) -> int | None:
        """Return the operand of the node that swaps the last two dimensions and gives this tensor."""
        node = self._source.get(tensor)
        if node is None or node.type is not N.TRANSPOSE:
            return None
        order = self._graph.constants.get(node.inputs[1])
        is_swap = order is not None and order.data is not None and tuple(order.data.reshape(-1).tolist()) == SWAPPED
        return node.inputs[0] if is_swap else None

    def _find_along_rows(self, y: int, *, turned: bool) -> Resizing | None:
        """Return the resizing along the rows of y. If y is transposed (`turned`), these are the columns of x."""
        node = self._source.get(y)
        if node is None or node.type not in (N.GATHER, N.ADD_FUSION):
            return None
        picked = node if node.type is N.GATHER else self._first_picked(node)
        if picked is None or (count := self._count(picked.inputs[1])) is None:
            return None
        rows = picked.inputs[0]
        x = self._swapped(rows) if turned else rows
        if x is None:
            return None
        dimension = COLUMNS if turned else ROWS
        if not self._is_constant(picked.inputs[2], ROWS):
            return None
        for factor, written in self._candidates(x, rows, dimension, count):
            how = written.as_nearest(picked.inputs[1]) if node is picked else written.as_linear(y)
            if how:
                sizes, factors = ({}, {dimension: factor}) if factor else ({dimension: count}, {})
                return Resizing(x, sizes, factors, how)
        return None

    def _is_constant(self, tensor: int, number: int) -> bool:
        constant = self._graph.constants.get(tensor)
        data = constant.data if constant is not None else None
        return data is not None and data.size == 1 and data.item() == number

    def _first_picked(self, total: Node) -> Node | None:
        """Return the GATHER of the first summand: the pixels that are weighted first."""
        weighted = self._source.get(total.inputs[0])
        picked = self._source.get(weighted.inputs[0]) if weighted and weighted.type is N.MUL_FUSION else None
        return picked if picked is not None and picked.type is N.GATHER else None

    def _count(self, positions: int) -> int | None:
        """Return the tensor with the number of positions, from which the graph calculates the positions."""
        for _ in range(LONGEST_WAY):
            node = self._source.get(positions)
            if node is None or node.type not in ARITHMETIC:
                return None
            if node.type is N.TOPK_FUSION:
                count = node.inputs[1]
                return count if self._graph.tensors[count].data_type is DataType.INT64 else None
            positions = node.inputs[2 if node.type is N.WHERE else 0]
        return None

    def _candidates(self, x: int, rows: int, dimension: int, count: int) -> Iterator[tuple[int, "_Resampling"]]:
        """Yield the calculations that may have resized x, one for each way to get its size.

        Each comes with the integer factor from the old size to the new one, or 0 without such a factor.
        """
        given = self._calculations
        length = self._graph.tensors[x].shape[dimension]
        sizes = [given.find(N.RESHAPE, given.size(x, dimension), given.constant(np.array([1])))]
        if length != UNKNOWN_DIM:
            sizes.append(given.constant(np.array([length])))
        for size in sizes:
            yield 0, _Resampling(given, rows, size, count)
            node = self._source.get(count)
            factor = self._graph.constants.get(node.inputs[1]) if node and node.type is N.MUL_FUSION else None
            if factor is not None and factor.data is not None and factor.data.shape == (1,):
                number = int(factor.data.item())
                if given.find(N.MUL_FUSION, size, given.constant(factor.data)) == given.number(count) and number > 0:
                    scale = given.constant(np.array([number], np.float32))
                    yield number, _Resampling(given, rows, size, count, scale)


class _Calculations:
    """Tensors of a graph, numbered by the calculation that makes them: equal calculations have equal numbers."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[Any, int] = {}
        self._numbers: dict[int, int] = {}
        for tensor, constant in graph.constants.items():
            if constant.data is not None and constant.data.size <= FEW and not graph.tensors[tensor].quant:
                self._numbers[tensor] = self._new(_constant_key(constant.data))
        for index in graph.order:
            node = graph.nodes[index]
            if node.type in ARITHMETIC and not self._is_quantized(node):
                for at, tensor in enumerate(node.outputs):
                    self._numbers[tensor] = self._new(self._key(node, at))

    def number(self, tensor: int) -> int:
        """Return the number of a tensor's calculation; a tensor that isn't calculated here has a number of its own."""
        if tensor not in self._numbers:
            self._numbers[tensor] = self._new(tensor)
        return self._numbers[tensor]

    def find(self, node_type: NodeType, *operands: int, output: int = 0, **attrs: Any) -> int:
        """Return the number of a calculation if the graph contains it, else NOWHERE."""
        key = (node_type, _attributes(node_type, tuple(sorted(attrs.items()))), operands, output)
        return self._known.get(key, NOWHERE)

    def constant(self, data: Any) -> int:
        return self._known.get(_constant_key(data), NOWHERE)

    def cast(self, x: int, data_type: DataType) -> int:
        return self._known.get((N.CAST, data_type, x), NOWHERE)

    def size(self, x: int, dimension: int) -> int:
        """Return the number of the calculation of a dimension's length, as a vector with one element."""
        shape = self.find(N.SHAPE, self.number(x))
        at = self.constant(np.array(dimension))
        return self.find(N.UNSQUEEZE, self.find(N.GATHER, shape, at, self.constant(np.array(0))), axis=(0,))

    def data_type(self, tensor: int) -> DataType:
        return self._graph.tensors[tensor].data_type

    def _key(self, node: Node, output: int) -> Any:
        operands = tuple(map(self.number, node.inputs))
        if node.type is N.CAST:
            # Several numbers stand for one data type, so the key has the output's type instead of the second operand.
            return (N.CAST, self.data_type(node.outputs[0]), operands[0])
        return (node.type, _attributes(node.type, tuple(sorted(node.attrs.items()))), operands, output)

    def _new(self, key: Any) -> int:
        return self._known.setdefault(key, len(self._known))

    def _is_quantized(self, node: Node) -> bool:
        return any(self._graph.tensors[tensor].quant for tensor in (*node.inputs, *node.outputs))


class _Resampling:
    """Calculation that resizes the rows of an image, as the importer writes it.

    Without `factor`, the scale follows from the old and the new size.
    """

    def __init__(self, given: _Calculations, x: int, size: int, count: int, factor: int | None = None) -> None:
        self._given = given
        self._x = x
        self._old = given.cast(size, DataType.FLOAT32)
        self._new = given.cast(given.number(count), DataType.FLOAT32)
        self._scale = self._find(N.DIV_FUSION, self._new, self._old) if factor is None else factor
        self._length = self._new if factor is None else self._find(N.MUL_FUSION, self._old, factor)
        zeros = given.find(N.FILL, self._number(0), given.number(count))
        order = given.find(N.TOPK_FUSION, zeros, given.number(count), output=1)
        self._index = given.cast(given.cast(order, DataType.INT64), DataType.FLOAT32)

    def as_nearest(self, indices: int) -> dict[str, str] | None:
        """Return Resize's attributes if `indices` are those of the nearest old pixels, else None."""
        wanted = self._given.number(indices)
        for coordinates, rounding in product(COORDINATES, ROUNDINGS):
            position = self._position(coordinates)
            if position != NOWHERE and self._indices(self._rounded(position, rounding)) == wanted:
                how = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
                return {"mode": "nearest", **how}
        return None

    def as_linear(self, y: int) -> dict[str, str] | None:
        """Return Resize's attributes if y is the weighted sum of two neighbours, else None.

        Integers are excluded, because ONNX Runtime rounds their sum differently.
        """
        if self._given.data_type(self._x) not in (DataType.FLOAT32, DataType.FLOAT16):
            return None
        wanted = self._given.number(y)
        for coordinates in COORDINATES:
            position = self._position(coordinates)
            if position != NOWHERE and self._weighted(self._inside(position)) == wanted:
                return {"mode": "linear", "coordinate_transformation_mode": coordinates}
        return None

    def _weighted(self, position: int) -> int:
        first = self._find(N.FLOOR, position)
        rest = self._find(N.SUB_FUSION, position, first)
        parts = []
        for offset, weight in enumerate((self._find(N.SUB_FUSION, self._number(1), rest), rest)):
            indices = self._indices(self._find(N.ADD_FUSION, first, self._number(offset)))
            pixels = self._find(N.GATHER, self._given.number(self._x), indices, self._given.constant(np.array(ROWS)))
            data_type = self._given.data_type(self._x)
            typed = weight if data_type is DataType.FLOAT32 else self._given.cast(weight, data_type)
            parts.append(self._find(N.MUL_FUSION, pixels, self._given.find(N.UNSQUEEZE, typed, axis=(1,))))
        return self._find(N.ADD_FUSION, *parts)

    def _position(self, coordinates: str) -> int:
        half = self._number(0.5)
        shifted = self._find(N.DIV_FUSION, self._find(N.ADD_FUSION, self._index, half), self._scale)
        centred = self._find(N.SUB_FUSION, shifted, half)
        match coordinates:
            case "asymmetric":
                return self._find(N.DIV_FUSION, self._index, self._scale)
            case "align_corners":
                steps = self._find(N.SUB_FUSION, self._length, self._number(1))
                last = self._find(N.SUB_FUSION, self._old, self._number(1))
                above = self._find(N.MUL_FUSION, self._index, last)
                return self._find(N.DIV_FUSION, above, self._find(N.MAXIMUM, steps, self._number(1e-6)))
            case "half_pixel":
                return centred
            case "pytorch_half_pixel":
                is_single = self._find(N.LESS, self._new, self._number(1.5))
                return self._find(N.WHERE, is_single, self._index, centred)
            case _:
                return shifted

    def _rounded(self, position: int, rounding: str) -> int:
        match rounding:
            case "floor":
                return self._find(N.FLOOR, position)
            case "ceil":
                return self._find(N.CEIL, position)
            case "round_prefer_floor":
                return self._find(N.CEIL, self._find(N.SUB_FUSION, position, self._number(0.5)))
            case _:
                return self._find(N.FLOOR, self._find(N.ADD_FUSION, position, self._number(0.5)))

    def _indices(self, places: int) -> int:
        return self._given.cast(self._inside(places), DataType.INT64)

    def _inside(self, places: int) -> int:
        last = self._find(N.SUB_FUSION, self._old, self._number(1))
        return self._find(N.MINIMUM, self._find(N.MAXIMUM, places, self._number(0)), last)

    def _find(self, node_type: NodeType, *operands: int) -> int:
        return self._given.find(node_type, *operands)

    def _number(self, number: float) -> int:
        return self._given.constant(np.array(number, np.float32))


def _constant_key(data: Any) -> Any:
    return (data_type_of(data.dtype), data.shape, data.tobytes())


@cache
def _attributes(node_type: NodeType, attrs: tuple[tuple[str, Any], ...]) -> str:
    """Return all attributes of a node as text, with defaults for those that it leaves out."""
    return str(OPERATORS[node_type].bind(dict(attrs)))
