"""What ONNX Runtime would compute from constants while it loads a model, and if that is bounded.

A few bytes can ask for any amount: they need only name a length. Where shapes tell how much it is, it is counted. Where
they depend on elements of constants, those few are computed here, as long as they are few.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, TypeProto, defs, helper, numpy_helper, shape_inference

from nnrt_backend_onnxruntime.builder import AnyArray
from nnrt_backend_onnxruntime.kernels import IR_VERSION, names
from nnrt_backend_onnxruntime.programs.operators import ONNX_DOMAINS
from nnrt_backend_onnxruntime.programs.shapes import sized_as
from nnrt_backend_onnxruntime.programs.skeleton import all_graphs, graphs_of
from nnrt_backend_onnxruntime.programs.tensors import size_of

# What may be made of constants: so many bytes, and so many times the model's own.
MOST_FOLDED_BYTES = 1 << 26
MOST_FOLDED_SHARE = 4
# Products that may be computed for that.
MOST_FOLDED_PRODUCTS = 1 << 33
# Elements, or bytes, of a constant, and nodes, that are looked into here.
MOST_ELEMENTS = 8192
MOST_COMPUTED = 4096

# Bytes of a dequantized number, of half a byte.
_MOST_WIDENED = 8
# Operators that take about as many steps as there are elements.
_LIGHT = names(
    """
    Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Clip Concat Constant
    ConstantOfShape Cos DequantizeLinear Div Equal Erf Exp Expand Flatten Floor Gather GatherElements GatherND Greater
    GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Log Max Min Mod Mul Neg Not Or Pad Pow QuantizeLinear Range
    Reciprocal ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Reshape Round ScatterElements ScatterND Shape Sigmoid
    Sign Sin Size Slice Split Sqrt Squeeze Sub Sum Tanh Tile Transpose Trilu Unsqueeze Where Xor
    """
)

# Computes a model without inputs.
Compute = Callable[[onnx.ModelProto], Sequence[AnyArray]]


def is_bounded(graph: onnx.GraphProto, opsets: Sequence[onnx.OperatorSetIdProto], compute: Compute) -> bool:
    """Tell if little follows from constants alone, in a graph whose types are inferred."""
    own_bytes = sum(
        size_of(tensor.data_type, math.prod(tensor.dims)) or 0
        for inner in all_graphs(graph)
        for tensor in inner.initializer
    )
    most_bytes = MOST_FOLDED_BYTES + MOST_FOLDED_SHARE * own_bytes
    # Mostly shapes tell; then no elements are needed.
    return any(
        _Folding(opsets, lookup, most_bytes, MOST_FOLDED_PRODUCTS).is_bounded(graph, _Scope({}, {}, {}))
        for lookup in (None, compute)
    )


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known inside of a graph, by name: types, bytes of constants, and elements of those of few."""

    types: dict[str, TypeProto]
    constants: dict[str, int]
    elements: dict[str, TensorProto]

    def inside(self, graph: onnx.GraphProto, looks: bool) -> "_Scope":
        scope = _Scope(dict(self.types), dict(self.constants), dict(self.elements))
        for entries in (graph.value_info, graph.output, graph.input):
            scope.types.update((entry.name, entry.type) for entry in entries)
        for tensor in graph.initializer:
            scope.types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            scope.constants[tensor.name] = size_of(tensor.data_type, math.prod(tensor.dims)) or 0
            if looks and _has_few(tensor):
                scope.elements[tensor.name] = tensor
        for sparse in graph.sparse_initializer:
            scope.constants[sparse.values.name] = size_of(sparse.values.data_type, math.prod(sparse.dims)) or 0
        return scope

    def is_constant(self, node: onnx.NodeProto) -> bool:
        """Tell if a node depends on constants alone; a shape that is fixed is one."""
        if node.op_type in ("Shape", "Size"):
            return all(name in self.constants or self.size_bytes(name) is not None for name in node.input)
        return all(not name or name in self.constants for name in node.input)

    def size_bytes(self, name: str) -> int | None:
        kind = self.types.get(name)
        found = None if kind is None else sized_as(name, kind)
        return None if found is None else found.size_bytes({})

    def is_tensor(self, name: str) -> bool:
        kind = self.types.get(name)
        return kind is None or kind.WhichOneof("value") in (None, "tensor_type")


@dataclass(slots=True)
class _Folding:
    opsets: Sequence[onnx.OperatorSetIdProto]
    compute: Compute | None
    bytes_left: int
    products_left: int
    computations_left: int = MOST_COMPUTED

    def is_bounded(self, graph: onnx.GraphProto, outer: _Scope) -> bool:
        scope = outer.inside(graph, self.compute is not None)
        for node in graph.node:
            if not all(self.is_bounded(inner, scope) for inner in graphs_of(node)):
                return False
            # What has graphs is not computed beforehand, but for the choice between those of an If; nor are sequences.
            if (node.op_type == "If" or not any(graphs_of(node))) and scope.is_constant(node):
                outputs = [name for name in node.output if name]
                if any(map(scope.is_tensor, outputs)) and not self._fits(node, outputs, scope):
                    return False
        return True

    def _fits(self, node: onnx.NodeProto, outputs: Sequence[str], scope: _Scope) -> bool:
        """Count what a node makes of constants; False where that is too much, or nobody knows."""
        if any(scope.size_bytes(name) is None for name in outputs):
            scope.types.update(self._types(node, scope))
        inputs = [scope.constants.get(name, 0) for name in node.input]
        least = _MOST_WIDENED * inputs[0] if node.op_type in ("QuantizeLinear", "DequantizeLinear") else None
        for name in outputs:
            size_bytes = scope.size_bytes(name)
            size_bytes = least if size_bytes is None else size_bytes
            if size_bytes is None:
                return False
            scope.constants[name] = size_bytes
            self.bytes_left -= size_bytes
            if node.op_type not in _LIGHT:
                self.products_left -= size_bytes * max((1, *inputs))
        if self.bytes_left < 0 or self.products_left < 0:
            return False
        if self.compute is not None:
            scope.elements.update(self._elements(node, outputs, scope))
        return True

    def _types(self, node: onnx.NodeProto, scope: _Scope) -> Mapping[str, TypeProto]:
        """The types of a node's outputs, by the elements of its inputs."""
        given = [name for name in node.input if name]
        version = self._version(node.domain)
        if self.compute is None or version is None or any(name not in scope.types for name in given):
            return {}
        try:
            return shape_inference.infer_node_outputs(
                defs.get_schema(node.op_type, version, node.domain),
                node,
                {name: scope.types[name] for name in given},
                {name: scope.elements[name] for name in given if name in scope.elements},
                opset_imports=list(self.opsets),
            )
        except Exception:  # Of several kinds: it isn't known then.
            return {}

    def _elements(self, node: onnx.NodeProto, outputs: Sequence[str], scope: _Scope) -> Mapping[str, TensorProto]:
        """The outputs of a node, where they and its inputs have few elements."""
        if node.op_type not in _LIGHT or node.domain not in ONNX_DOMAINS or len(outputs) != len(node.output):
            return {}
        if any(scope.constants[name] > MOST_ELEMENTS for name in outputs):
            return {}
        if node.op_type in ("Shape", "Size"):
            found = _of_shape(node, scope)
        else:
            found = _value_of(node) or self._computed(node, scope)
        return (
            {} if found is None else {name: numpy_helper.from_array(found[at], name) for at, name in enumerate(outputs)}
        )

    def _computed(self, node: onnx.NodeProto, scope: _Scope) -> Sequence[AnyArray] | None:
        given = {name: scope.elements.get(name) for name in node.input if name}
        if self.compute is None or None in given.values() or not self.computations_left:
            return None
        self.computations_left -= 1
        wanted = [helper.make_empty_tensor_value_info(name) for name in node.output]
        graph = helper.make_graph([node], "constant", [], wanted, [tensor for tensor in given.values() if tensor])
        for name, tensor in zip(given, graph.initializer, strict=True):
            tensor.name = name
        try:
            return self.compute(helper.make_model(graph, opset_imports=self.opsets, ir_version=IR_VERSION))
        except Exception:  # Whatever is wrong with it: it isn't known then.
            return None

    def _version(self, domain: str) -> int | None:
        return next(
            (entry.version for entry in self.opsets if (entry.domain or "ai.onnx") == (domain or "ai.onnx")), None
        )


def _has_few(tensor: TensorProto) -> bool:
    is_here = tensor.data_location != TensorProto.EXTERNAL and tensor.data_type != TensorProto.STRING
    return is_here and math.prod(tensor.dims) <= MOST_ELEMENTS


def _of_shape(node: onnx.NodeProto, scope: _Scope) -> Sequence[AnyArray] | None:
    """The output of a node that asks for the shape of a tensor."""
    kind = scope.types.get(node.input[0])
    found = None if kind is None else sized_as("", kind)
    dims = [] if found is None else [dim for dim in found.dims if isinstance(dim, int)]
    if found is None or len(dims) != len(found.dims):
        return None
    if node.op_type == "Size":
        return [np.array(math.prod(dims), np.int64)]
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    return [np.array(dims[bounds.get("start", 0) : bounds.get("end", len(dims))], np.int64)]


def _value_of(node: onnx.NodeProto) -> Sequence[AnyArray] | None:
    """The value of a Constant that is a tensor."""
    if node.op_type != "Constant" or not node.attribute or not node.attribute[0].HasField("t"):
        return None
    return [numpy_helper.to_array(node.attribute[0].t)] if _has_few(node.attribute[0].t) else None
