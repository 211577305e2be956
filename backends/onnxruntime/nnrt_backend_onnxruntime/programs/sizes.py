"""What a program may make: known from its shapes before anything is computed.

ONNX's own shape inference says how large tensors are, without the shapes that the file declares for them, for those may
be wrong on purpose. What it can't tell is bounded when it is made: constants by not being computed beforehand, all else
by the memory of the process.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import shape_inference

from nnrt_backend_onnxruntime.kernels import names
from nnrt_backend_onnxruntime.programs.skeleton import all_graphs, graphs_of, place_of, quoted
from nnrt_backend_onnxruntime.programs.tensors import size_of
from nnrt_hdi.errors import InvalidFile, OutOfMemory
from nnrt_hdi.tensor import Shape

# What ONNX Runtime may make of constants when it loads a model: so many bytes, and so many times the model's own.
MOST_FOLDED_BYTES = 1 << 26
MOST_FOLDED_SHARE = 4
# Products that it may compute for that.
MOST_FOLDED_PRODUCTS = 1 << 33
# Bytes of a dequantized number, of half a byte.
_MOST_WIDENED = 8
# Operators for which it takes as many steps as there are elements.
_LIGHT = names(
    """
    Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Clip Concat Constant
    ConstantOfShape Cos DequantizeLinear Div Equal Erf Exp Expand Flatten Floor Gather GatherElements GatherND Greater
    GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Log Max Min Mod Mul Neg Not Or Pad Pow QuantizeLinear Range
    Reciprocal ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Reshape Round ScatterElements ScatterND Shape Sigmoid
    Sign Sin Size Slice Split Sqrt Squeeze Sub Sum Tanh Tile Transpose Trilu Unsqueeze Where Xor
    """
)

# A dimension: its length, or the name of one that an input decides, or nothing.
Dim = int | str | None
Dims = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Sized:
    """A tensor with its data type's size, as far as its shape is known."""

    name: str
    data_type: int
    dims: Dims

    def size_bytes(self, known: Mapping[str, int]) -> int | None:
        """Bytes that it has with these dimensions, None where others decide too."""
        count = 1
        for dim in self.dims:
            length = known.get(dim) if isinstance(dim, str) else dim
            if length is None:
                return None
            count *= length
        return size_of(self.data_type, count)


class Sizes:
    """The tensors of a model, and how large they get with the shapes of its inputs."""

    def __init__(self, model: onnx.ModelProto, max_tensor_bytes: int) -> None:
        """Raises OutOfMemory for a tensor that is too large whatever the inputs are."""
        self._max_tensor_bytes = max_tensor_bytes
        self._graph = _inferred(model).graph
        constants = {tensor.name for tensor in self._graph.initializer}
        inputs = [entry for entry in self._graph.input if entry.name not in constants]
        self._inputs = [sized.dims for sized in _sized(inputs)]
        decided = {dim for dims in self._inputs for dim in dims if isinstance(dim, str)}
        tensors = [entry for graph in all_graphs(self._graph) for entry in (*graph.value_info, *graph.output)]
        self.require_fits(_sized(tensors), {})
        self._deciding = list(
            {
                (entry.data_type, entry.dims): entry
                for entry in _sized(tensors)
                if any(isinstance(dim, str) for dim in entry.dims)
                and decided.issuperset(dim for dim in entry.dims if isinstance(dim, str))
            }.values()
        )
        self.folding_is_bounded = self._folding_is_bounded()

    @property
    def depend_on_inputs(self) -> bool:
        """True where a run must be asked about."""
        return bool(self._deciding)

    def require_run_fits(self, shapes: Sequence[Shape]) -> None:
        """Raise OutOfMemory for inputs from which too large a tensor follows."""
        known = {
            dim: length
            for dims, shape in zip(self._inputs, shapes, strict=True)
            for dim, length in zip(dims, shape, strict=True)
            if isinstance(dim, str)
        }
        self.require_fits(self._deciding, known)

    def require_fits(self, tensors: "Iterator[Sized] | Sequence[Sized]", known: Mapping[str, int]) -> None:
        """Raise OutOfMemory for a tensor that is known to be too large."""
        for entry in tensors:
            size_bytes = entry.size_bytes(known)
            if size_bytes is not None and size_bytes > self._max_tensor_bytes:
                raise OutOfMemory(
                    f"it needs {size_bytes} bytes; at most {self._max_tensor_bytes} are allowed",
                    place=f"tensor {quoted(entry.name)}",
                )

    # ---- constants that ONNX Runtime computes when it loads a model

    def _folding_is_bounded(self) -> bool:
        own_bytes = sum(
            size_of(tensor.data_type, math.prod(tensor.dims)) or 0
            for graph in all_graphs(self._graph)
            for tensor in graph.initializer
        )
        budget = _Budget(MOST_FOLDED_BYTES + MOST_FOLDED_SHARE * own_bytes, MOST_FOLDED_PRODUCTS)
        return _is_bounded(self._graph, _Scope({}, {}, set()), budget)


@dataclass(slots=True)
class _Budget:
    size_bytes: int
    products: int


def _is_bounded(graph: onnx.GraphProto, outer: "_Scope", budget: _Budget) -> bool:
    """Tell if the budget is enough for all that follows from constants alone, and take it from there."""
    scope = outer.inside(graph)
    for node in graph.node:
        if not all(_is_bounded(inner, scope, budget) for inner in graphs_of(node)):
            return False
        outputs = [name for name in node.output if name]
        # What has graphs is not computed beforehand, but for the choice between those of an If.
        if (node.op_type != "If" and any(graphs_of(node))) or not scope.is_constant(node):
            continue
        if scope.others.issuperset(outputs):
            continue  # Sequences and the like aren't either.
        inputs = [scope.constants.get(name, 0) for name in node.input]
        least = _MOST_WIDENED * inputs[0] if node.op_type in ("QuantizeLinear", "DequantizeLinear") else None
        for name in outputs:
            size_bytes = scope.sizes.get(name, least)
            if size_bytes is None:
                return False
            scope.constants[name] = size_bytes
            budget.size_bytes -= size_bytes
            if node.op_type not in _LIGHT:
                budget.products -= size_bytes * max((1, *inputs))
        if budget.size_bytes < 0 or budget.products < 0:
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known inside of a graph: bytes of constants and of other tensors by name, and what is no tensor."""

    constants: dict[str, int]
    sizes: dict[str, int]
    others: set[str]

    def inside(self, graph: onnx.GraphProto) -> "_Scope":
        scope = _Scope(dict(self.constants), dict(self.sizes), set(self.others))
        for tensor in graph.initializer:
            scope.constants[tensor.name] = size_of(tensor.data_type, math.prod(tensor.dims)) or 0
        for sparse in graph.sparse_initializer:
            scope.constants[sparse.values.name] = size_of(sparse.values.data_type, math.prod(sparse.dims)) or 0
        entries = [*graph.value_info, *graph.output, *graph.input]
        for sized in _sized(entries):
            if (known_bytes := sized.size_bytes({})) is not None:
                scope.sizes[sized.name] = known_bytes
        scope.others.update(entry.name for entry in entries if not _may_be_tensor(entry.type))
        return scope

    def is_constant(self, node: onnx.NodeProto) -> bool:
        """Tell if a node depends on constants alone; a shape that is fixed is one."""
        known = self.sizes if node.op_type in ("Shape", "Size") else self.constants
        return all(not name or name in self.constants or name in known for name in node.input)


def _may_be_tensor(kind: onnx.TypeProto) -> bool:
    return kind.WhichOneof("value") in (None, "tensor_type")


# ---- shapes


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for graph in all_graphs(bare.graph):
        del graph.value_info[:]
        for entry in graph.output:
            if entry.type.HasField("tensor_type"):
                entry.type.tensor_type.ClearField("shape")
    for graph in all_graphs(bare.graph):
        _require_sorted(graph)
    try:
        return shape_inference.infer_shapes(bare, data_prop=True)
    except Exception as error:  # Of several kinds, none of which says more.
        raise InvalidFile(f"its shapes can't be inferred: {quoted(str(error))}") from error


def _require_sorted(graph: onnx.GraphProto) -> None:
    """Refuse nodes in another order than ONNX asks for: one that stands before what it depends on."""
    made = {entry.name for entry in graph.input} | {tensor.name for tensor in graph.initializer}
    made.update(sparse.values.name for sparse in graph.sparse_initializer)
    later = {name for node in graph.node for name in node.output}
    for node in graph.node:
        early = [name for name in node.input if name and name in later and name not in made]
        if early:
            raise InvalidFile(
                f"{quoted(early[0])} is used before it is made; sort the nodes, as ONNX asks for", place=place_of(node)
            )
        made.update(node.output)


def _sized(entries: Sequence[onnx.ValueInfoProto]) -> Iterator[Sized]:
    """The entries that are tensors of a known rank."""
    for entry in entries:
        kind = entry.type.tensor_type
        if entry.type.HasField("tensor_type") and kind.HasField("shape"):
            yield Sized(entry.name, kind.elem_type, tuple(map(_dim, kind.shape.dim)))


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return dim.dim_param or None
