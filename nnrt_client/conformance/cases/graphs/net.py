"""Builder for graphs of several nodes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.conformance.case import Case, Level, Mark
from nnrt_client.conformance.cases.draft import Draft
from nnrt_client.conformance.numbers import Numbers
from nnrt_client.conformance.tolerance import Tolerance
from nnrt_hdi.enums import DataType, Format, NodeType
from nnrt_hdi.graph import Graph
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


class Net(Draft):
    """Graph under construction with pseudorandom weights, which are the same on every machine."""

    def __init__(self, name: str, layout: Format = Format.NHWC, dtype: str = "f4") -> None:
        super().__init__(name)
        self.layout = layout
        self.dtype = np.dtype(dtype)
        self.numbers = Numbers(name)

    def input(self, *shape: int, dtype: str = "", quant: QuantParam | None = None) -> int:
        """Add an input; a shape of rank 4 is an image in NHWC."""
        data_type = data_type_of(np.dtype(dtype or self.dtype))
        return self.input_of(self._spec(data_type, shape, (quant,) if quant else ()))

    def ints(self, *numbers: int) -> int:
        """Add a constant vector of indices."""
        return self.constant(np.array(numbers, np.int64))

    def scalar(self, number: float) -> int:
        """Add a scalar constant of the net's data type."""
        return self.constant(np.array(number, self.dtype))

    def weights(self, *shape: int, size: float | None = None) -> int:
        """Add constant weights, by default scaled so that activations keep their magnitude."""
        fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 16
        limit = (3 / max(fan_in, 1)) ** 0.5 if size is None else size
        return self.constant(self.numbers.reals(-limit, limit, shape).astype(self.dtype))

    def images(self, *shape: int) -> int:
        """Add convolution weights of shape [out, height, width, in], in the net's layout."""
        return self.laid_out(self.weights(*shape))

    def laid_out(self, at: int) -> int:
        """Transpose a constant [out, height, width, in] to the net's layout."""
        if self.layout is Format.NCHW:
            self.constants[at] = np.ascontiguousarray(np.moveaxis(self.constants[at], 3, 1))
        self.tensors[at] = replace(self.tensors[at], shape=self.constants[at].shape, format=self.layout)
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
        """Add a node and return its outputs.

        `quant` has scale and zero point of each output. Quantized outputs have the type of the first input.
        """
        kind = data_type if data_type is not DataType.UNKNOWN else self.tensors[inputs[0]].data_type
        declared = tuple(TensorSpec(kind, (), quant=(QuantParam(*param),)) for param in quant)
        if not quant and data_type is not DataType.UNKNOWN:
            declared = (TensorSpec(data_type, ()),)
        return self.outputs_of(node_type, inputs, declared, attrs)

    def spec(self, at: int) -> TensorSpec:
        """Return the spec of a tensor."""
        return self.tensors[at]

    def reals(self, *shape: int, size: float = 2.0) -> AnyArray:
        """Return random floats as a run's input. A shape of rank 4, in NHWC, gives an image in the net's layout."""
        x = self.numbers.reals(-size, size, shape).astype(self.dtype)
        return np.ascontiguousarray(np.moveaxis(x, 3, 1)) if x.ndim == 4 and self.layout is Format.NCHW else x

    def integers(self, low: int, high: int, *shape: int, dtype: str = "i4") -> AnyArray:
        """Return random integers in [low, high) as a run's input."""
        x = self.numbers.integers(low, high, shape).astype(dtype)
        return np.ascontiguousarray(np.moveaxis(x, 3, 1)) if x.ndim == 4 and self.layout is Format.NCHW else x

    def _spec(self, data_type: DataType, shape: Sequence[int], quant: tuple[QuantParam, ...]) -> TensorSpec:
        if len(shape) != 4:
            return TensorSpec(data_type, tuple(shape), quant=quant)
        turned = (shape[0], shape[3], shape[1], shape[2]) if self.layout is Format.NCHW else tuple(shape)
        return TensorSpec(data_type, turned, self.layout, quant)


Made = tuple[Graph, Sequence[Sequence[AnyArray]]]


@dataclass(frozen=True)
class Network:
    """Function that builds a graph and the inputs of its runs with a Net."""

    title: str
    make: Callable[[Net], Made]
    family: str
    tolerance: Tolerance = LAYERS
    layouts: Sequence[Format] = (Format.NHWC,)
    dtypes: Sequence[str] = ("f4",)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    also_half: bool = False

    def cases(self) -> list[Case]:
        """Return one case per layout and type, and one that allows half precision."""
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
