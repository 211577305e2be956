"""Analysis of a program before it is loaded: the sizes of its tensors, and what loading would compute.

While ONNX Runtime loads a model, it computes all that follows from constants alone. A few bytes can cause any amount of
this: they need only contain a length. Where shapes determine the amount, this module counts it. Where shapes depend on
elements of constants, it computes those elements, as long as they are few.
"""

import math
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from nnrt_onnx_lowering.engine import IR_VERSION, names
from nnrt_onnx_lowering.value import AnyArray
from onnx import TensorProto, TypeProto, helper, numpy_helper

from nnrt_backend_onnxruntime.programs.divisions import RISKY, Divisions
from nnrt_backend_onnxruntime.programs.operators import ONNX_DOMAINS
from nnrt_backend_onnxruntime.programs.products import factors_of
from nnrt_backend_onnxruntime.programs.shapes import Dim, Inference, SizedTensor, sized_tensor
from nnrt_backend_onnxruntime.programs.skeleton import all_graphs, graphs_of, place_of, quoted
from nnrt_backend_onnxruntime.programs.tensors import size_of
from nnrt_hdi.errors import InvalidFile

# The most bytes that may be computed from constants: this number, plus this multiple of the model's own constants.
MOST_FOLDED_BYTES = 1 << 26
MOST_FOLDED_SHARE = 4
# The most multiplications that this computation may take.
MOST_FOLDED_PRODUCTS = 1 << 33
# The largest constant that this module computes, in bytes, and the most nodes that it computes.
MOST_LOOKED_AT = 8192
MOST_COMPUTED = 4096

# Dequantizing enlarges constants at most by this factor: from 4 bits to FLOAT32.
_MOST_WIDENED = 8
# Operators with about as many arithmetic steps as elements.
_LIGHT = names(
    """
    Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Clip Concat Constant
    ConstantOfShape Cos DequantizeLinear Div Equal Erf Exp Expand Flatten Floor Gather GatherElements GatherND Greater
    GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Log Max Min Mod Mul Neg Not Or Pad Pow QuantizeLinear Range
    Reciprocal ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Reshape Round ScatterElements ScatterND Shape Sigmoid
    Sign Sin Size Slice Split Sqrt Squeeze Sub Sum Tanh Tile Transpose Trilu Unsqueeze Where Xor
    """
)

# Function that computes a model without inputs.
Compute = Callable[[onnx.ModelProto], Sequence[AnyArray]]


@dataclass(frozen=True, slots=True)
class Analysis:
    """Result of the analysis: the tensors of all graphs of a model, and whether folding its constants costs little."""

    inputs: Sequence[SizedTensor]
    # The outputs whose rank is known.
    outputs: Sequence[SizedTensor]
    tensors: Sequence[SizedTensor]
    # The factors of the multiply-adds of each product, without those of inner graphs.
    products: Sequence[tuple[Dim, ...]]
    folding_is_bounded: bool
    # The divisions of each graph that has any. Inner graphs come before outer ones.
    divisions: Sequence[Divisions]
    # Whether the rank of every tensor is known, and no constant is empty.
    is_complete: bool

    @property
    def is_never_empty(self) -> bool:
        """True if only a run with an empty input has empty tensors."""
        given = {dim for entry in self.inputs for dim in entry.dims}
        return self.is_complete and all(
            dim in given if isinstance(dim, str) else dim for entry in self.tensors for dim in entry.dims
        )


def analyse_model(model: onnx.ModelProto, compute: Compute) -> Analysis:
    """Analyse a model without functions. Raises InvalidFile if its nodes are out of order."""
    # The shapes are enough for most models. Only for others, elements are computed.
    walk = _Walk(model, None)
    scope = walk.graph(model.graph, _Scope())
    if not walk.is_bounded:
        walk = _Walk(model, compute)
        scope = walk.graph(model.graph, _Scope())
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = (sized_tensor(entry.name, entry.type) for entry in model.graph.input if entry.name not in constants)
    types = ((entry.name, scope[entry.name].type) for entry in model.graph.output)
    outputs = (sized_tensor(name, kind) for name, kind in types if kind is not None)
    return Analysis(
        [entry for entry in inputs if entry],
        [entry for entry in outputs if entry],
        walk.tensors,
        walk.products,
        walk.is_bounded,
        walk.divisions,
        walk.is_complete,
    )


@dataclass(slots=True)
class _Value:
    """Known facts about a value: its type, its bytes if it is constant, its elements if they are few."""

    type: TypeProto | None = None
    constant_bytes: int | None = None
    elements: TensorProto | None = None

    @property
    def tensor(self) -> SizedTensor | None:
        return None if self.type is None else sized_tensor("", self.type)

    @property
    def size_bytes(self) -> int | None:
        found = self.tensor
        return None if found is None else found.size_bytes({})

    @property
    def may_be_tensor(self) -> bool:
        return self.type is None or self.type.HasField("tensor_type")


# Values by name; those of the outer graphs come last.
_Scope = ChainMap[str, _Value]


@dataclass(slots=True)
class _Walk:
    model: onnx.ModelProto
    compute: Compute | None
    tensors: list[SizedTensor] = field(default_factory=list)
    products: list[tuple[Dim, ...]] = field(default_factory=list)
    divisions: list[Divisions] = field(default_factory=list)
    is_bounded: bool = True
    is_complete: bool = True
    products_left: int = MOST_FOLDED_PRODUCTS
    computations_left: int = MOST_COMPUTED
    bytes_left: int = field(init=False)
    inference: Inference = field(init=False)

    def __post_init__(self) -> None:
        self.inference = Inference(self.model.opset_import)
        self.bytes_left = MOST_FOLDED_BYTES + MOST_FOLDED_SHARE * sum(
            _bytes_of(tensor) for graph in all_graphs(self.model.graph) for tensor in graph.initializer
        )

    def graph(self, graph: onnx.GraphProto, outer: _Scope, is_inner: bool = False) -> _Scope:
        """Analyse the nodes of a graph, given the values of the graphs around it."""
        scope = outer.new_child()
        for entry in graph.input:
            scope[entry.name] = _Value(_declared_type(entry.type, with_shape=not is_inner))
        for tensor in graph.initializer:
            kind = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            scope[tensor.name] = _Value(kind, _bytes_of(tensor), tensor if _has_few(tensor) else None)
            self.is_complete &= 0 not in tensor.dims
        for sparse in graph.sparse_initializer:
            size_bytes = size_of(sparse.values.data_type, math.prod(sparse.dims)) or 0
            scope[sparse.values.name] = _Value(None, size_bytes)
            self.is_complete = False
        divided: dict[int, int] = {}
        for at, node in enumerate(graph.node):
            self._node(node, scope)
            if not is_inner:
                tensors = [scope.get(name, _Value()).tensor for name in (*node.input, *node.output[:1])]
                if (factors := factors_of(node, tensors)) is not None:
                    self.products.append(factors)
            if node.op_type == "Div" and len(node.input) == 2 and len(node.output) == 1:
                values = [scope.get(name, _Value()) for name in node.input]
                if not _is_harmless(values[1]) and (data_type := _data_type(values)) in RISKY:
                    divided[at] = data_type
        if divided:
            self.divisions.append(Divisions(graph, divided))
        for entry in graph.output:
            if entry.name not in scope:
                raise InvalidFile(f"its output {quoted(entry.name)} is nowhere made")
        return scope

    def _node(self, node: onnx.NodeProto, scope: _Scope) -> None:
        for name in node.input:
            if name and name not in scope:
                raise InvalidFile(
                    f"{quoted(name)} is not there yet; make it, and sort the nodes, as ONNX asks for",
                    place=place_of(node),
                )
        branches = [(graph, self.graph(graph, scope, is_inner=True)) for graph in graphs_of(node)]
        given = [scope[name] for name in node.input if name]
        types = _if_types(branches) if node.op_type == "If" else self._types(node, given)
        outputs = {name: _Value(kind) for name, kind in zip(node.output, types, strict=False) if name}
        outputs = {name: outputs.get(name, _Value()) for name in node.output if name}
        for name, value in outputs.items():
            if value.type is not None and (entry := sized_tensor(name, value.type)) is not None:
                self.tensors.append(entry)
            else:
                self.is_complete = False
        # ONNX Runtime folds no nodes with graphs, except for the choice between the graphs of an If, and no sequences.
        if (node.op_type == "If" or not branches) and _is_constant(node, given):
            self._count_folded(node, given, [value for value in outputs.values() if value.may_be_tensor])
            if node.op_type == "Constant" and len(node.attribute) == 1 and _has_few(node.attribute[0].t):
                for value in outputs.values():
                    value.elements = node.attribute[0].t if node.attribute[0].HasField("t") else None
            elif self.compute is not None and len(outputs) == len(node.output):
                self._compute_elements(node, given, list(outputs.values()))
        scope.update(outputs)

    def _types(self, node: onnx.NodeProto, given: Sequence[_Value]) -> list[TypeProto | None]:
        inputs = [name for name in node.input if name]
        if any(value.type is None for value in given):
            return []
        found = self.inference.outputs_of(
            node,
            {name: value.type for name, value in zip(inputs, given, strict=True) if value.type is not None},
            {name: value.elements for name, value in zip(inputs, given, strict=True) if value.elements is not None},
        )
        return [found.get(name) for name in node.output]

    # ---- constants

    def _count_folded(self, node: onnx.NodeProto, given: Sequence[_Value], outputs: Sequence[_Value]) -> None:
        """Subtract the work of computing a node with constant inputs from the work that loading may cause."""
        inputs = [value.constant_bytes or 0 for value in given]
        least = _MOST_WIDENED * inputs[0] if node.op_type in ("QuantizeLinear", "DequantizeLinear") and inputs else None
        for value in outputs:
            size_bytes = least if value.size_bytes is None else value.size_bytes
            value.constant_bytes = size_bytes or 0
            if size_bytes is None:
                self.is_bounded = False
                continue
            self.bytes_left -= size_bytes
            if node.op_type not in _LIGHT:
                self.products_left -= size_bytes * max((1, *inputs))
        self.is_bounded &= self.bytes_left >= 0 and self.products_left >= 0

    def _compute_elements(self, node: onnx.NodeProto, given: Sequence[_Value], outputs: Sequence[_Value]) -> None:
        """Compute the elements of a small constant from small constants."""
        if node.op_type not in _LIGHT or node.domain not in ONNX_DOMAINS:
            return
        if any(value.size_bytes is None or value.size_bytes > MOST_LOOKED_AT for value in outputs):
            return
        found = _shape_of(node, given) if node.op_type in ("Shape", "Size") else self._computed(node, given)
        for value, array in zip(outputs, found, strict=False):
            value.elements = numpy_helper.from_array(array)

    def _computed(self, node: onnx.NodeProto, given: Sequence[_Value]) -> Sequence[AnyArray]:
        elements = [value.elements for value in given if value.elements is not None]
        if self.compute is None or len(elements) != len(given) or not self.computations_left:
            return ()
        if node.op_type == "Div" and not _is_harmless(given[-1]):
            return ()
        self.computations_left -= 1
        constants = {}
        for name, tensor in zip((name for name in node.input if name), elements, strict=True):
            constants[name] = TensorProto()
            constants[name].CopyFrom(tensor)
            constants[name].name = name
        wanted = [helper.make_empty_tensor_value_info(name) for name in node.output]
        graph = helper.make_graph([node], "constant", [], wanted, list(constants.values()))
        try:
            return self.compute(helper.make_model(graph, opset_imports=self.model.opset_import, ir_version=IR_VERSION))
        except Exception:  # Whatever the error is, the node's result is unknown.
            return ()


def _data_type(values: Sequence[_Value]) -> int:
    """Return the data type that the values share, or 0 if it is unknown."""
    types = [value.type.tensor_type.elem_type for value in values if value.type is not None]
    return next((kind for kind in types if kind), 0)


def _is_harmless(divisor: _Value) -> bool:
    """Return whether all elements of a divisor are known and none is -1."""
    return divisor.elements is not None and not (numpy_helper.to_array(divisor.elements) == -1).any()


def _is_constant(node: onnx.NodeProto, given: Sequence[_Value]) -> bool:
    """Return whether a node depends on constants alone; a fixed shape counts as constant."""
    asks_shape = node.op_type in ("Shape", "Size")
    return all(value.constant_bytes is not None or (asks_shape and value.size_bytes is not None) for value in given)


def _shape_of(node: onnx.NodeProto, given: Sequence[_Value]) -> Sequence[AnyArray]:
    """Return the result of a Shape or Size node."""
    found = sized_tensor("", given[0].type) if given and given[0].type is not None else None
    dims = [] if found is None else [dim for dim in found.dims if isinstance(dim, int)]
    if found is None or len(dims) != len(found.dims):
        return ()
    if node.op_type == "Size":
        return [np.array(math.prod(dims), np.int64)]
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    return [np.array(dims[bounds.get("start", 0) : bounds.get("end", len(dims))], np.int64)]


def _if_types(branches: Sequence[tuple[onnx.GraphProto, _Scope]]) -> Iterator[TypeProto | None]:
    """Yield the types of an If's outputs, as far as its graphs agree."""
    for entries in zip(*(graph.output for graph, _ in branches), strict=False):
        types = [scope[entry.name].type for entry, (_, scope) in zip(entries, branches, strict=True)]
        first = types[0]
        if first is None or all(kind == first for kind in types):
            yield first
        else:
            bare = [None if kind is None else _declared_type(kind, with_shape=False) for kind in types]
            yield bare[0] if all(kind == bare[0] for kind in bare) else None


def _declared_type(kind: TypeProto, with_shape: bool) -> TypeProto | None:
    """Return a declared type, or None if it says nothing."""
    if not kind.HasField("tensor_type"):
        return kind if kind.WhichOneof("value") else None
    if not kind.tensor_type.elem_type:
        return None
    if with_shape:
        return kind
    return helper.make_tensor_type_proto(kind.tensor_type.elem_type, None)


def _bytes_of(tensor: TensorProto) -> int:
    return size_of(tensor.data_type, math.prod(tensor.dims)) or 0


def _has_few(tensor: TensorProto) -> bool:
    is_here = tensor.data_location != TensorProto.EXTERNAL and tensor.data_type != TensorProto.STRING
    return is_here and _bytes_of(tensor) <= MOST_LOOKED_AT
