"""Builder of ONNX models: ONNX operators are its methods, and tensors are values that support arithmetic.

    def swish(op: Onnx, call: Call, x: Value) -> Value:
        return x * op.Sigmoid(x)

A value's dimensions may have another order in memory: its layout. Transposing a value only changes the layout.
Operators that can compute in any layout read the memory as it is (see `layouts`). For the others the builder adds an
ONNX Transpose, or transposes a constant by numpy. So an NHWC graph needs no transposes between two image operators,
which ONNX computes in NCHW.

Where the engine has no kernel for a data type, the builder casts the operands to a wider one (see `data_types`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from nnrt_hdi.tensor import UNKNOWN_DIM, Shape
from nnrt_onnx_lowering import layouts, vectors
from nnrt_onnx_lowering.data_types import computation_type, widened_operands
from nnrt_onnx_lowering.engine import IR_VERSION, OPSETS, AnyDType, Engine, Operator
from nnrt_onnx_lowering.memory_order import permutation_between
from nnrt_onnx_lowering.value import BOOL, FLOAT32, INT64, AnyArray, Given, Operators, Value, element_type

# Constants of up to this many bytes are embedded in the model, larger ones stay outside. ONNX Runtime infers shapes
# before it gets the latter. For that it needs the sizes of Split's parts: those of the most parts of SPLIT fit in.
EMBEDDED_BYTES = 2048
# The location of large constants in the model. It is no file: the engine gets the arrays by name.
WEIGHTS = "weights"

_TRUTH = frozenset({"And", "Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"})
_NUMBERS = frozenset({"ArgMax", "NonMaxSuppression", "Shape", "Size"})
# The index of the operand whose data type the result has, where that isn't the first.
_LEADING = {"Where": 1, "QuantizeLinear": 2, "DequantizeLinear": 1}


class Onnx(Operators):
    """ONNX model under construction."""

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

    def _add_single(self, op_type: str, *inputs: Given | None, domain: str = "", **attrs: Any) -> Value:
        values = self._as_values(op_type, inputs)
        known = vectors.fold(op_type, values, attrs)
        return self._add_node(op_type, 1, values, attrs, domain)[0] if known is None else known

    def multi_output(self, op_type: str, outputs: int, *inputs: Given | None, **attrs: Any) -> tuple[Value, ...]:
        return self._add_node(op_type, outputs, self._as_values(op_type, inputs), attrs)

    def _add_node(
        self, op_type: str, outputs: int, values: list[Value | None], attrs: dict[str, Any], domain: str = ""
    ) -> tuple[Value, ...]:
        values, attrs, layout, rank = layouts.arrange(op_type, values, attrs)
        lead = values[_LEADING.get(op_type, 0)] if values else None
        dtype = wide = lead.dtype if lead else FLOAT32
        if lead is not None and op_type != "Cast":
            dtypes = tuple([value.dtype if value is not None else None for value in values])
            operator = Operator(op_type, dtypes, attrs, outputs, domain)
            wide = computation_type(self.engine, operator, dtype)
            if wide != dtype:
                wanted = widened_operands(operator, dtype, wide)
                values = [value and value.cast(to or wide) for value, to in zip(values, wanted, strict=True)]
        names = [self._tensor_name(value) if value is not None else "" for value in values]
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
        """Add an input to the model."""
        name = self._new_name("input")
        dims = [f"{name}_{axis}" if dim == UNKNOWN_DIM else dim for axis, dim in enumerate(shape)]
        self.inputs.append(helper.make_tensor_value_info(name, element_type(dtype), dims))
        return Value(self, dtype, len(shape), name, shape=shape)

    def in_layout(self, x: Value, layout: Shape) -> Value:
        if x.layout == layout:
            return x
        permutation = permutation_between(x.layout, layout)
        if x.data is not None:
            return replace(x, data=x.data.transpose(permutation), layout=layout)
        key = x.name, permutation
        if key not in self._transposes:
            self._transposes[key] = self._add_transpose(x, permutation, layout)
        return replace(x, name=self._transposes[key], layout=layout)

    def has_layout(self, x: Value, layout: Shape) -> bool:
        is_made = (x.name, permutation_between(x.layout, layout)) in self._transposes
        return x.layout == layout or x.data is not None or is_made

    def _add_transpose(self, x: Value, permutation: Shape, layout: Shape) -> str:
        """Add a node that permutes the dimensions in memory, and return the name of its result.

        Where only dimensions of length 1 move, the node is a Reshape.
        """
        name = self._new_name("Transpose")
        if x.shape and _is_in_place([x.shape[axis] for axis in x.layout or range(len(x.shape))], permutation):
            sizes = [x.shape[axis] for axis in layout or range(len(x.shape))]
            if sizes.count(UNKNOWN_DIM) < 2 and 0 not in sizes:
                shape = self._tensor_name(self.ints(sizes))
                self.nodes.append(helper.make_node("Reshape", [x.name, shape], [name], name=f"{self.place}/{name}"))
                return name
        node = helper.make_node("Transpose", [x.name], [name], name=f"{self.place}/{name}", perm=permutation)
        self.nodes.append(node)
        return name

    def model(self, outputs: Sequence[tuple[Value, Shape]]) -> onnx.ModelProto:
        """Return the model with these outputs and, as far as they are known, their shapes.

        Large constants are in `weights`.
        """
        given = {info.name for info in self.inputs}
        infos: list[onnx.ValueInfoProto] = []
        for value, shape in outputs:
            plain = self.plain(value)
            name = self._tensor_name(plain)
            if value.data is not None or name in given:  # Each output needs a tensor of its own.
                name = self._tensor_name(self.Identity(plain))
            given.add(name)
            dims = [None if dim == UNKNOWN_DIM else dim for dim in shape]
            infos.append(helper.make_tensor_value_info(name, element_type(value.dtype), dims))
        nodes = self._needed_nodes({info.name for info in infos})
        graph = helper.make_graph(nodes, "nnrt", self.inputs, infos, self._initializers)
        return helper.make_model(graph, opset_imports=OPSETS, ir_version=IR_VERSION)

    def _needed_nodes(self, wanted: set[str]) -> list[onnx.NodeProto]:
        """Return the nodes that these tensors depend on."""
        kept = []
        for node in reversed(self.nodes):
            if not wanted.isdisjoint(node.output):
                wanted.update(node.input)
                kept.append(node)
        return kept[::-1]

    def _as_values(self, op_type: str, inputs: Sequence[Given | None]) -> list[Value | None]:
        """Return operands as values: arrays and numbers become constants; numbers get the type of the first tensor."""
        if all(given is None or isinstance(given, Value) for given in inputs):
            return list(inputs)  # type: ignore[arg-type]  # the condition above says so
        tensors = inputs[1:] if op_type == "Where" else inputs
        dtype = next((given.dtype for given in tensors if isinstance(given, Value)), FLOAT32)
        return [given if given is None else self._value(given, dtype) for given in inputs]

    def _tensor_name(self, value: Value) -> str:
        """Return the name of the ONNX tensor with the value's elements in their order in memory."""
        data = value.data
        if data is None:
            return value.name
        key = (data.__array_interface__["data"][0], data.shape, data.strides, data.dtype)
        if key not in self._constants:
            name = self._new_name("constant")
            self._constants[key] = name, data  # Keeps the array too, so that no other array can get its address.
            self._initializers.append(self._initializer(name, data))
        return self._constants[key][0]

    def _initializer(self, name: str, data: AnyArray) -> onnx.TensorProto:
        # Copies only transposed arrays.
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
    """Return whether the permutation moves only dimensions of length 1, so that all elements stay where they are."""
    kept = [axis for axis in permutation if sizes[axis] != 1]
    return kept == sorted(kept)


def _result_type(op_type: str, number: int, lead: AnyDType, attrs: Mapping[str, Any]) -> AnyDType:
    """Return the data type of an operator's result, which follows from the type of its leading operand."""
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
    """Return an initializer whose elements are stored outside of the model."""
    tensor = onnx.TensorProto(
        name=name,
        data_type=element_type(array.dtype),
        dims=array.shape,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for key, entry in (("location", location), ("offset", str(offset)), ("length", str(array.nbytes))):
        tensor.external_data.add(key=key, value=entry)
    return tensor
