"""The language lowerings are written in: ONNX operators as methods, tensors as values that can be calculated with.

    def swish(op: Onnx, call: Call, x: Value) -> Value:
        return x * op.Sigmoid(x)

A value may lie in memory in another layout: with its dimensions in another order. Transposing one only changes how it
is read; operators that can do with any layout are given what lies there (see `layouts`), and only for one that can't is
an ONNX Transpose added, of a constant by numpy. So the transposes between two images in NCHW that an NHWC graph asks
for never come to be.

Where the engine has no kernel for a data type, operands are cast to one that holds their elements (see `data_types`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from nnrt_hdi.tensor import UNKNOWN_DIM, Shape
from nnrt_onnx_lowering import layouts, vectors
from nnrt_onnx_lowering.data_types import computed_in, widened
from nnrt_onnx_lowering.engine import IR_VERSION, OPSETS, AnyDType, Engine, Operator

# Constants of up to this many bytes stand in the model itself, larger ones beside it. ONNX Runtime infers shapes before
# it has these, and must know the sizes of as many parts as SPLIT may have.
EMBEDDED_BYTES = 2048
# Where a model says that they are: no file, for the engine is given them.
WEIGHTS = "weights"

AnyArray = NDArray[Any]

BOOL, INT64, FLOAT32 = np.dtype(np.bool_), np.dtype(np.int64), np.dtype(np.float32)

_TRUTH = frozenset({"And", "Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"})
_NUMBERS = frozenset({"ArgMax", "NonMaxSuppression", "Shape", "Size"})
# The operand whose data type the result has, where it isn't the first.
_LEADING = {"Where": 1, "QuantizeLinear": 2, "DequantizeLinear": 1}


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A tensor of the model under construction.

    In memory its dimension layout[n] is the n-th; an empty layout is that of its own dimensions. A constant has its
    elements `data` as they lie in memory. `shape` is what is known of a node's operand or result, and `elements` are
    those of a small constant: all that a lowering may decide by. `parts` are the elements of a vector, or the one of a
    number, where each is known or can be had by itself (see `vectors`).
    """

    op: "Onnx"
    dtype: AnyDType
    rank: int | None
    name: str = ""
    data: AnyArray | None = None
    layout: Shape = ()
    shape: Shape = ()
    elements: AnyArray | None = None
    parts: vectors.Parts = ()

    def __add__(self, other: "Given") -> "Value":
        return self.op.Add(self, other)

    def __sub__(self, other: "Given") -> "Value":
        return self.op.Sub(self, other)

    def __mul__(self, other: "Given") -> "Value":
        return self.op.Mul(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: "Given") -> "Value":
        return self.op.Div(self, other)

    def __neg__(self) -> "Value":
        return self.op.Neg(self)

    def cast(self, dtype: AnyDType) -> "Value":
        """The elements in another data type."""
        if dtype == self.dtype:
            return self
        if self.data is not None:
            with np.errstate(all="ignore"):
                return replace(self, dtype=dtype, data=self.data.astype(dtype), elements=None)
        return replace(self.op.Cast(self, to=element_type(dtype)), shape=self.shape)

    def known(self, rank: int, shape: Shape) -> "Value":
        """Give the same, of which so much is known. Every node has its results come this way."""
        return Value(self.op, self.dtype, rank, self.name, self.data, self.layout, shape, self.elements, self.parts)

    def transposed(self, permutation: Sequence[int]) -> "Value":
        """With dimension permutation[n] as the n-th: only read so."""
        shape = tuple(self.shape[axis] for axis in permutation) if self.shape else ()
        layout = layouts.after(self.layout, permutation)
        return replace(self, rank=len(permutation), layout=layout, shape=shape, elements=None, parts=())


Given = Value | int | float | AnyArray


class Onnx:
    """An ONNX model under construction. Its methods that begin with a capital are the operators of ONNX."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.place = ""
        self.inputs: list[onnx.ValueInfoProto] = []
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, AnyArray] = {}
        self._initializers: list[onnx.TensorProto] = []
        self._constants: dict[tuple[int, Shape, Shape, AnyDType], tuple[str, AnyArray]] = {}
        self._transposes: dict[tuple[str, Shape], str] = {}
        self._names = 0

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)
        return partial(self._one, op_type)

    def Max(self, a: Value, b: Given) -> Value:
        """The larger ones. ONNX Runtime takes the lower half of INT64 for signed where the upper ones are equal."""
        return self.Where(self.Less(a, b), b, a) if a.dtype == INT64 else self._one("Max", a, b)

    def Min(self, a: Value, b: Given) -> Value:
        """The lesser ones; as `Max`."""
        return self.Where(self.Less(b, a), b, a) if a.dtype == INT64 else self._one("Min", a, b)

    def _one(self, op_type: str, *inputs: Given | None, domain: str = "", **attrs: Any) -> Value:
        values = self._values(op_type, inputs)
        known = vectors.folded(op_type, values, attrs)
        return self._made(op_type, 1, values, attrs, domain)[0] if known is None else known

    def several(self, op_type: str, outputs: int, *inputs: Given | None, **attrs: Any) -> tuple[Value, ...]:
        """An operator with several outputs. Numbers become constants of the data type of the first tensor."""
        return self._made(op_type, outputs, self._values(op_type, inputs), attrs)

    def _made(
        self, op_type: str, outputs: int, values: list[Value | None], attrs: dict[str, Any], domain: str = ""
    ) -> tuple[Value, ...]:
        values, attrs, layout, rank = layouts.arranged(op_type, values, attrs)
        lead = values[_LEADING.get(op_type, 0)] if values else None
        dtype = wide = lead.dtype if lead else FLOAT32
        if lead is not None and op_type != "Cast":
            dtypes = tuple([value.dtype if value is not None else None for value in values])
            operator = Operator(op_type, dtypes, attrs, outputs, domain)
            wide = computed_in(self.engine, operator, dtype)
            if wide != dtype:
                wanted = widened(operator, dtype, wide)
                values = [value and value.cast(to or wide) for value, to in zip(values, wanted, strict=True)]
        names = [self._memory(value) if value is not None else "" for value in values]
        results = [self._new_name(op_type) for _ in range(outputs)]
        node_name = f"{self.place}/{results[0]}"
        self.nodes.append(helper.make_node(op_type, names, results, name=node_name, domain=domain or None, **attrs))
        made = [
            Value(self, _result_type(op_type, number, wide, attrs), rank, result, layout=layout)
            for number, result in enumerate(results)
        ]
        if wide == dtype:
            return tuple(made)
        return tuple([value.cast(_result_type(op_type, number, dtype, attrs)) for number, value in enumerate(made)])

    def input(self, dtype: AnyDType, shape: Shape) -> Value:
        """A tensor that a run is given."""
        name = self._new_name("input")
        dims = [f"{name}_{axis}" if dim == UNKNOWN_DIM else dim for axis, dim in enumerate(shape)]
        self.inputs.append(helper.make_tensor_value_info(name, element_type(dtype), dims))
        return Value(self, dtype, len(shape), name, shape=shape)

    def constant(self, data: AnyArray, elements: AnyArray | None = None) -> Value:
        return Value(self, data.dtype, data.ndim, data=data, shape=data.shape, elements=elements)

    def scalar(self, number: float, dtype: AnyDType) -> Value:
        with np.errstate(all="ignore"):
            return self.constant(np.array(number).astype(dtype))

    def ints(self, numbers: Sequence[int]) -> Value:
        """A vector of INT64, as ONNX takes axes and sizes."""
        return self.constant(np.array(numbers, INT64))

    def size(self, x: Value, axis: int) -> "int | Value":
        """The length of a dimension: a number if it is known, else a vector of one that the run makes."""
        if x.shape and x.shape[axis] != UNKNOWN_DIM:
            return x.shape[axis]
        at = layouts.axis_in_memory(x.layout, axis)
        return replace(self.Shape(replace(x, layout=()), start=at, end=at + 1), rank=1)

    def sizes(self, x: Value) -> Value:
        """All dimensions of x, as a vector."""
        assert x.rank is not None
        return self.vector([self.size(x, axis) for axis in range(x.rank)])

    def vector(self, parts: "Sequence[int | Value]") -> Value:
        """Numbers and vectors of INT64 behind each other."""
        if all(isinstance(part, int) for part in parts):
            return self.ints([part for part in parts if isinstance(part, int)])
        if len(parts) == 1 and isinstance(parts[0], Value):
            return parts[0]
        vectors_of_one = [self.ints([part]) if isinstance(part, int) else part for part in parts]
        (joined,) = self.several("Concat", 1, *vectors_of_one, axis=0)
        return replace(joined, rank=1, parts=tuple(parts))

    def element(self, part: "int | Value") -> Value:
        """A number of INT64, which may stand in a vector of one."""
        if isinstance(part, int):
            return self.constant(np.array(part, INT64))
        (number,) = self.several("Squeeze", 1, part, self.ints([0]))
        return replace(number, rank=0, parts=(part,))

    def range(self, start: int, limit: "int | Value", delta: int) -> Value:
        """Numbers from start to limit, which says their data type; INT64 if it is none."""
        dtype = limit.dtype if isinstance(limit, Value) else INT64
        numbers = (self._value(number, dtype) for number in (start, limit, delta))
        return replace(self.Range(*numbers), rank=1)

    def reshape(self, x: Value, shape: "Sequence[int | Value]") -> Value:
        """x in another shape; a single dimension that nothing is known of takes the rest."""
        x, wanted = self.plain(x), self.vector(shape)
        if x.data is not None and wanted.data is not None:
            return self.constant(x.data.reshape(wanted.data.tolist()), x.elements)
        # Without it a 0 copies a dimension of x.
        may_hold_zero = -1 not in shape if wanted.data is None else 0 in wanted.data
        return replace(self.Reshape(x, wanted, **({"allowzero": 1} if may_hold_zero else {})), rank=len(shape))

    def unsqueeze(self, x: Value, axes: Sequence[int]) -> Value:
        """x with dimensions of length 1 at these places of the result."""
        if not axes:
            return x
        assert x.rank is not None
        return replace(self.Unsqueeze(x, self.ints(axes)), rank=x.rank + len(axes))

    def squeeze(self, x: Value, axes: Sequence[int]) -> Value:
        """x without these dimensions of length 1."""
        if not axes:
            return x
        assert x.rank is not None
        return replace(self.Squeeze(x, self.ints(axes)), rank=x.rank - len(axes))

    def plain(self, x: Value) -> Value:
        """x in memory as it is."""
        return self.in_layout(x, ())

    def in_layout(self, x: Value, layout: Shape) -> Value:
        """x in memory with dimension layout[n] as the n-th."""
        if x.layout == layout:
            return x
        permutation = layouts.between(x.layout, layout)
        if x.data is not None:
            return replace(x, data=x.data.transpose(permutation), layout=layout)
        key = x.name, permutation
        if key not in self._transposes:
            self._transposes[key] = self._moved(x, permutation, layout)
        return replace(x, name=self._transposes[key], layout=layout)

    def lies_in(self, x: Value, layout: Shape) -> bool:
        """x can be had in this layout without another transpose in the model."""
        is_made = (x.name, layouts.between(x.layout, layout)) in self._transposes
        return x.layout == layout or x.data is not None or is_made

    def _moved(self, x: Value, permutation: Shape, layout: Shape) -> str:
        """The name of a tensor with the dimensions in memory permuted; where only such of length 1 move, reshaped."""
        name = self._new_name("Transpose")
        if x.shape and _is_in_place([x.shape[axis] for axis in x.layout or range(len(x.shape))], permutation):
            sizes = [x.shape[axis] for axis in layout or range(len(x.shape))]
            if sizes.count(UNKNOWN_DIM) < 2 and 0 not in sizes:
                shape = self._memory(self.ints(sizes))
                self.nodes.append(helper.make_node("Reshape", [x.name, shape], [name], name=f"{self.place}/{name}"))
                return name
        node = helper.make_node("Transpose", [x.name], [name], name=f"{self.place}/{name}", perm=permutation)
        self.nodes.append(node)
        return name

    def model(self, outputs: Sequence[tuple[Value, Shape]]) -> onnx.ModelProto:
        """The model with these outputs, each with what is known of its shape; large constants are `weights`."""
        given = {info.name for info in self.inputs}
        infos: list[onnx.ValueInfoProto] = []
        for value, shape in outputs:
            plain = self.plain(value)
            name = self._memory(plain)
            if value.data is not None or name in given:  # An output has a tensor of its own.
                name = self._memory(self.Identity(plain))
            given.add(name)
            dims = [None if dim == UNKNOWN_DIM else dim for dim in shape]
            infos.append(helper.make_tensor_value_info(name, element_type(value.dtype), dims))
        nodes = self._needed({info.name for info in infos})
        graph = helper.make_graph(nodes, "nnrt", self.inputs, infos, self._initializers)
        return helper.make_model(graph, opset_imports=OPSETS, ir_version=IR_VERSION)

    def _needed(self, wanted: set[str]) -> list[onnx.NodeProto]:
        """The nodes that these tensors depend on."""
        kept = []
        for node in reversed(self.nodes):
            if not wanted.isdisjoint(node.output):
                wanted.update(node.input)
                kept.append(node)
        return kept[::-1]

    def _values(self, op_type: str, inputs: Sequence[Given | None]) -> list[Value | None]:
        """Operands as values: arrays are constants, and so are numbers, of the data type of the first tensor."""
        if all(given is None or isinstance(given, Value) for given in inputs):
            return list(inputs)  # type: ignore[arg-type]  # as has been looked at
        tensors = inputs[1:] if op_type == "Where" else inputs
        dtype = next((given.dtype for given in tensors if isinstance(given, Value)), FLOAT32)
        return [given if given is None else self._value(given, dtype) for given in inputs]

    def _value(self, given: Given, dtype: AnyDType) -> Value:
        if isinstance(given, Value):
            return given
        return self.constant(given) if isinstance(given, np.ndarray) else self.scalar(given, dtype)

    def _memory(self, value: Value) -> str:
        """The name of the ONNX tensor that holds what lies in memory."""
        data = value.data
        if data is None:
            return value.name
        key = (data.__array_interface__["data"][0], data.shape, data.strides, data.dtype)
        if key not in self._constants:
            name = self._new_name("constant")
            self._constants[key] = name, data  # The array, too, for another one may not come to lie there.
            self._initializers.append(self._initializer(name, data))
        return self._constants[key][0]

    def _initializer(self, name: str, data: AnyArray) -> onnx.TensorProto:
        # Copied only if it was transposed.
        array = np.ascontiguousarray(data).reshape(data.shape)
        if array.nbytes <= EMBEDDED_BYTES:
            return onnx.TensorProto(
                name=name, data_type=element_type(array.dtype), dims=array.shape, raw_data=array.tobytes()
            )
        self.weights[name] = array
        return external_tensor(name, array)

    def _new_name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}_{self._names}"


def _is_in_place(sizes: Sequence[int], permutation: Shape) -> bool:
    """A permutation leaves dimensions longer than 1 in their order, and so all elements."""
    kept = [axis for axis in permutation if sizes[axis] != 1]
    return kept == sorted(kept)


def _result_type(op_type: str, number: int, lead: AnyDType, attrs: Mapping[str, Any]) -> AnyDType:
    """The data type of an operator's result, from that of its leading operand."""
    if op_type == "Cast":
        return np.dtype(helper.tensor_dtype_to_np_dtype(attrs["to"]))
    if op_type in _TRUTH:
        return BOOL
    if op_type in ("ConvInteger", "MatMulInteger"):
        return np.dtype(np.int32)
    if op_type == "DynamicQuantizeLinear" and number != 1:
        return np.dtype(np.uint8)
    return INT64 if op_type in _NUMBERS or (op_type == "TopK" and number == 1) else lead


def external_tensor(name: str, array: AnyArray, location: str = WEIGHTS, offset: int = 0) -> onnx.TensorProto:
    """An initializer whose elements are beside the model."""
    tensor = onnx.TensorProto(
        name=name,
        data_type=element_type(array.dtype),
        dims=array.shape,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for key, entry in (("location", location), ("offset", str(offset)), ("length", str(array.nbytes))):
        tensor.external_data.add(key=key, value=entry)
    return tensor


@cache
def element_type(dtype: AnyDType) -> int:
    """ONNX's number of a data type."""
    return int(helper.np_dtype_to_tensor_dtype(dtype))
