"""Graphs of several nodes, built node by node."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.conformance.case import Case, Level, Mark
from nnrt_client.conformance.numbers import Numbers
from nnrt_client.conformance.tolerance import Tolerance
from nnrt_hdi.enums import DataType, Format, NodeType
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.tensor import QuantParam, TensorSpec, data_type_of

AnyArray = NDArray[Any]

LAYERS = Tolerance(
    "each layer makes its sums in another order, and the next ones multiply what it is off by",
    {DataType.FLOAT16: 2.0**-7, DataType.FLOAT32: 3e-5, DataType.FLOAT64: 1e-12},
)
HALF_LAYERS = Tolerance(
    "each layer rounds to FLOAT16, of 11 bits, and the next ones multiply what it is off by",
    {DataType.FLOAT16: 2.0**-5, DataType.FLOAT32: 2.0**-5},
)
QUANTIZED_LAYERS = Tolerance(
    "each layer is off by a step at most (ADR 3), of which the next one adds up several", {DataType.FLOAT32: 0.05}, 3
)


class Net:
    """A graph under construction, whose weights look random and are always the same."""

    def __init__(self, name: str, layout: Format = Format.NHWC, dtype: str = "f4") -> None:
        self.name = name
        self.layout = layout
        self.dtype = np.dtype(dtype)
        self.numbers = Numbers(name)
        self._tensors: list[TensorSpec] = []
        self._nodes: list[Node] = []
        self._inputs: list[int] = []
        self._constants: dict[int, AnyArray] = {}

    def input(self, *shape: int, dtype: str = "", quant: QuantParam | None = None) -> int:
        """Add an input; of rank 4 it is an image, its shape NHWC."""
        data_type = data_type_of(np.dtype(dtype or self.dtype))
        self._inputs.append(self._add(self._spec(data_type, shape, (quant,) if quant else ())))
        return self._inputs[-1]

    def constant(self, array: AnyArray, quant: Sequence[QuantParam] = ()) -> int:
        """Add a constant, without a layout."""
        at = self._add(TensorSpec(data_type_of(array.dtype), array.shape, quant=tuple(quant)))
        self._constants[at] = np.ascontiguousarray(array)
        return at

    def ints(self, *numbers: int) -> int:
        """Add a vector of indices."""
        return self.constant(np.array(numbers, np.int64))

    def scalar(self, number: float) -> int:
        """Add a number of the net's type."""
        return self.constant(np.array(number, self.dtype))

    def weights(self, *shape: int, size: float | None = None) -> int:
        """Add weights that keep numbers about as large as they are."""
        fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 16
        limit = (3 / max(fan_in, 1)) ** 0.5 if size is None else size
        return self.constant(self.numbers.reals(-limit, limit, shape).astype(self.dtype))

    def images(self, *shape: int) -> int:
        """Add weights of a convolution, [out, height, width, in], in the net's layout."""
        return self.laid_out(self.weights(*shape))

    def laid_out(self, at: int) -> int:
        """Turn a constant [out, height, width, in] into the net's layout."""
        if self.layout is Format.NCHW:
            self._constants[at] = np.ascontiguousarray(np.moveaxis(self._constants[at], 3, 1))
        self._tensors[at] = replace(self._tensors[at], shape=self._constants[at].shape, format=self.layout)
        return at

    def op(self, node_type: NodeType, *inputs: int, **attrs: Any) -> int:
        """Add a node with one output."""
        return self.ops(node_type, *inputs, **attrs)[0]

    def ops(
        self,
        node_type: NodeType,
        *inputs: int,
        quant: Sequence[tuple[float, int]] = (),
        data_type: DataType = DataType.UNKNOWN,
        **attrs: Any,
    ) -> tuple[int, ...]:
        """Add a node. `quant` are scale and zero point of each output, which have the type of the first input."""
        operands = [(self._tensors[at], self._constants.get(at)) for at in inputs]
        first = operands[0][0].data_type if data_type is DataType.UNKNOWN else data_type
        declared = tuple(TensorSpec(first, (), quant=(QuantParam(*param),)) for param in quant)
        operator = OPERATORS[node_type]
        specs = operator.infer(operands, operator.bind(attrs), declared or self._declared(data_type))
        outputs = tuple(self._add(spec) for spec in specs)
        self._nodes.append(Node(node_type, tuple(inputs), outputs, attrs, f"{self.name}/{len(self._nodes)}"))
        return outputs

    def _declared(self, data_type: DataType) -> tuple[TensorSpec, ...]:
        return () if data_type is DataType.UNKNOWN else (TensorSpec(data_type, ()),)

    def spec(self, at: int) -> TensorSpec:
        """Give what is known of a tensor."""
        return self._tensors[at]

    def graph(self, *outputs: int) -> Graph:
        """Give the graph."""
        constants = {at: Constant.of(array) for at, array in self._constants.items()}
        return Graph(tuple(self._tensors), tuple(self._nodes), tuple(self._inputs), outputs, constants, self.name)

    def real(self, *shape: int, size: float = 2.0) -> AnyArray:
        """Give an input of a run: real numbers, an image of rank 4 in the net's layout."""
        x = self.numbers.reals(-size, size, shape).astype(self.dtype)
        return np.ascontiguousarray(np.moveaxis(x, 3, 1)) if x.ndim == 4 and self.layout is Format.NCHW else x

    def whole(self, low: int, high: int, *shape: int, dtype: str = "i4") -> AnyArray:
        """Give an input of a run: whole numbers from `low` to below `high`."""
        x = self.numbers.integers(low, high, shape).astype(dtype)
        return np.ascontiguousarray(np.moveaxis(x, 3, 1)) if x.ndim == 4 and self.layout is Format.NCHW else x

    def _add(self, spec: TensorSpec) -> int:
        self._tensors.append(spec)
        return len(self._tensors) - 1

    def _spec(self, data_type: DataType, shape: Sequence[int], quant: tuple[QuantParam, ...]) -> TensorSpec:
        if len(shape) != 4:
            return TensorSpec(data_type, tuple(shape), quant=quant)
        turned = (shape[0], shape[3], shape[1], shape[2]) if self.layout is Format.NCHW else tuple(shape)
        return TensorSpec(data_type, turned, self.layout, quant)


Made = tuple[Graph, Sequence[Sequence[AnyArray]]]


@dataclass(frozen=True)
class Network:
    """A function that makes a graph and the inputs of its runs, out of a Net."""

    title: str
    make: Callable[[Net], Made]
    family: str
    tolerance: Tolerance = LAYERS
    layouts: Sequence[Format] = (Format.NHWC,)
    dtypes: Sequence[str] = ("f4",)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    also_half: bool = False

    def cases(self) -> list[Case]:
        """Make a case for each layout and type, and one that allows half precision."""
        made = []
        for layout in self.layouts:
            for dtype in self.dtypes:
                parts = [self.title, *([np.dtype(dtype).name] if len(self.dtypes) > 1 else [])]
                name = "-".join([*parts, *([layout.name] if len(self.layouts) > 1 else [])])
                make = partial(_made, self.make, name, layout, dtype)
                made.append(self._case(name, make, np.dtype(dtype)))
        if self.also_half:
            first = made[0]
            made.append(
                replace(
                    first,
                    name=f"{first.name}-enabled_float16",
                    data_type=DataType.FLOAT16,
                    tolerance=HALF_LAYERS,
                    enable_float16=True,
                )
            )
        return made

    def _case(self, name: str, make: Callable[[], Made], dtype: np.dtype[Any]) -> Case:
        graph, _ = make()
        kinds = tuple(dict.fromkeys(node.type for node in graph.nodes))
        assert all(kind in OPERATORS for kind in kinds)
        marks = {Mark.QUICK}
        marks |= {Mark.DYNAMIC} if any(spec.is_dynamic for spec in graph.input_specs) else set()
        tolerance = HALF_LAYERS if dtype == np.float16 else self.tolerance
        return Case(
            f"{Level.GRAPHS.value}/{name}",
            Level.GRAPHS,
            self.family,
            kinds,
            data_type_of(dtype),
            make,
            name,
            tolerance,
            marks=frozenset(marks),
        )


def _made(make: Callable[[Net], Made], name: str, layout: Format, dtype: str) -> Made:
    return make(Net(name, layout, dtype))
