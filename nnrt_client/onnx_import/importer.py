"""ONNX models as models: the way through the graph."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import onnx
from onnx import GraphProto, ValueInfoProto, helper

from nnrt_client.enums import Format
from nnrt_client.model import Model, ModelTensor
from nnrt_client.onnx_import import families  # noqa: F401  (they declare the operators)
from nnrt_client.onnx_import.call import Call, data_type_of, value_of
from nnrt_client.onnx_import.dims import Dim, Dims, shape_of, unlike
from nnrt_client.onnx_import.file import OnnxFile, type_name
from nnrt_client.onnx_import.functions import local_functions
from nnrt_client.onnx_import.operator import FIRST_OPSET, refuse
from nnrt_client.onnx_import.scope import Missing, Scope
from nnrt_client.onnx_import.step import Step
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.errors import InvalidFile, InvalidParameter, NnrtError, OutOfMemory, Unsupported
from nnrt_hdi.graph import MAX_NODES, shown_name
from nnrt_hdi.tensor import NUMPY_DTYPES, UNKNOWN_DIM, Array

# How deep functions may call functions.
_DEEPEST = 32

# What the functions of operators run into where a node is not as ONNX says.
_CONTRADICTIONS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
# What may be computed at import: this much, and several times what the file brings.
_FREE_BYTES = 1 << 30
_TIMES = 8

MadeT = TypeVar("MadeT")


class Importer:
    """One import: the model under construction, and what could not be imported."""

    def __init__(self, file: OnnxFile, shapes: Mapping[str, Sequence[int]]) -> None:
        self.file = file
        self.model = Model(file.proto.graph.name or "ONNX model")
        self._shapes = dict(shapes)
        self._problems: list[str] = []
        self.functions = local_functions(file.proto)
        self._declared = {info.name: info for info in file.proto.graph.value_info}
        self._count = 0
        self._room = _FREE_BYTES + _TIMES * file.size_bytes

    def run(self) -> Model:
        """The finished model. Raises Unsupported, which lists every node that can't be imported."""
        graph = self.file.proto.graph
        opsets = _opsets(self.file)
        values = self.constants(graph)
        inputs = [info for info in graph.input if info.name not in values]
        self._require_inputs(inputs)
        for info in inputs:
            values[info.name] = self.guarded(f"input {info.name!r}", partial(self._input, info)) or Missing()
        given = [value for info in inputs if isinstance(value := values[info.name], Value)]
        scope = Scope(graph.node, values, [info.name for info in graph.output], opsets)
        self.import_nodes(scope, 0, "")
        outputs = self._outputs(scope, given)
        if self._problems:
            parts = "1 part of it" if len(self._problems) == 1 else f"{len(self._problems)} parts of it"
            listed = "".join(f"\n  {problem}" for problem in self._problems)
            raise Unsupported(f"{parts} can't be imported:{listed}")
        self.model.specify_inputs_and_outputs([value.tensor for value in given], outputs)
        _drop_unused(self.model)
        self.model.finish()
        return self.model

    def guarded(self, place: str, make: Callable[[], MadeT]) -> MadeT | None:
        """What `make` gives; None where it can't be had, which is then a problem."""
        try:
            return make()
        except (Unsupported, InvalidParameter) as error:
            self._problems.append(f"{place}: {error}")
        except NnrtError as error:
            raise error.at(place) from error
        except _CONTRADICTIONS as error:
            self._problems.append(f"{place}: its inputs and attributes do not fit each other ({error})")
        return None

    def constants(self, graph: GraphProto) -> dict[str, Value | Missing]:
        """The initializers by name."""
        values: dict[str, Value | Missing] = {
            tensor.name: self.guarded("initializer", partial(self.file.value, self.model, tensor)) or Missing()
            for tensor in graph.initializer
        }
        for sparse in graph.sparse_initializer:
            self._problems.append(f"initializer {sparse.values.name!r}: it is sparse; make it dense")
            values[sparse.values.name] = Missing()
        return values

    def _require_inputs(self, inputs: Sequence[ValueInfoProto]) -> None:
        names = [info.name for info in inputs]
        unknown = set(self._shapes) - set(names)
        if unknown:
            known = ", ".join(map(repr, names)) or "none"
            raise InvalidParameter(f"shapes names {sorted(unknown)}; the inputs of the model are {known}")
        for info in inputs:
            if info.name in self._shapes and info.type.tensor_type.HasField("shape"):
                _require_fits(info, self._shapes[info.name])
        if not inputs:
            self._problems.append("it has no inputs, of which NNRt requires one")

    def _input(self, info: ValueInfoProto) -> Value:
        if not info.type.HasField("tensor_type"):
            refuse(f"it is no tensor but a {info.type.WhichOneof('value')}")
        type_ = info.type.tensor_type
        dtype = next((dtype for dtype in NUMPY_DTYPES.values() if _is(dtype, type_.elem_type)), None)
        if dtype is None:
            refuse(f"it is {type_name(type_.elem_type)}, which is no data type of NNRt")
        dims = self._dims(info)
        layout = Format.NCHW if len(dims) == 4 else Format.NONE
        return value_of(self.model.input(shape_of(dims), data_type_of(dtype), format=layout, name=info.name), dims)

    def _dims(self, info: ValueInfoProto) -> Dims:
        """The dimensions of an input, those that are fixed for this import as they are fixed."""
        type_ = info.type.tensor_type
        fixed = self._shapes.get(info.name)
        if not type_.HasField("shape"):
            if fixed is None:
                refuse("its rank is not known; give its shape in `shapes`")
            return tuple(dim if dim != UNKNOWN_DIM else unlike() for dim in fixed)
        dims = tuple(
            dim.dim_value if dim.HasField("dim_value") else Dim(dim.dim_param) if dim.dim_param else unlike()
            for dim in type_.shape.dim
        )
        if fixed is None:
            return dims
        return tuple(dim if size == UNKNOWN_DIM else size for dim, size in zip(dims, fixed, strict=True))

    def import_nodes(self, scope: Scope, depth: int, place: str) -> None:
        """Import what a scope's outputs need. What can't be is added to the problems, and the others go on."""
        if depth > _DEEPEST:
            raise InvalidFile(f"its functions and branches go deeper than {_DEEPEST}", place=place)
        # Exporters put a constant right in front of its reader, which may be taken into a node before both.
        for node in sorted(scope.nodes, key=lambda node: node.op_type != "Constant" or bool(node.input)):
            self._count += 1
            if self._count > MAX_NODES:
                raise InvalidFile(f"it has more than {MAX_NODES} nodes, those of its functions included")
            if id(node) not in scope.taken:
                name = node.name or next(iter(node.output), "")
                Step(self, node, scope, depth, f"{place}{node.op_type} node{shown_name(name)}").run()

    @property
    def problem_count(self) -> int:
        return len(self._problems)

    def add_problem(self, problem: str) -> None:
        self._problems.append(problem)

    def forget_problems(self, count: int) -> None:
        """Keep only so many problems."""
        del self._problems[count:]

    def charge(self, arrays: Sequence[Array | None]) -> None:
        """Count what is computed at import. Raises OutOfMemory for more than a sound model asks for."""
        self._room -= sum(array.nbytes for array in arrays if array is not None)
        if self._room < 0:
            raise OutOfMemory("the constants that it computes are far larger than those that it has")

    def stand_in(self, name: str) -> Value | Missing:
        """Something in place of what could not be imported, so that the nodes behind it are looked at.

        The file may say what it would be.
        """
        info = self._declared.get(name)
        try:
            return Missing() if info is None else self._input(info)
        except NnrtError:
            return Missing()

    def _outputs(self, scope: Scope, inputs: Sequence[Value]) -> list[ModelTensor]:
        """The tensors of the outputs: each has its name, is computed, and comes once."""
        tensors: list[ModelTensor] = []
        taken = [value.tensor for value in inputs]
        for name in scope.outputs:
            value = scope[name]
            if isinstance(value, Missing):
                continue
            tensor = self.guarded(f"output {name!r}", partial(_tensor_of, value))
            if tensor is None:
                continue
            if value.is_constant or tensor in (*taken, *tensors):
                copied = Call(self.model, "Identity", name, 0, [True]).copy(value)
                tensor = copied.tensor
            # Only here is it known which of a node's operations gives the output.
            self.model._tensors[tensor.index].desc.name = name
            tensors.append(tensor)
        return tensors


def _tensor_of(value: Value) -> ModelTensor:
    return value.tensor


def _require_fits(info: ValueInfoProto, fixed: Sequence[int]) -> None:
    """Refuse a shape for an input that contradicts what the file says of it."""
    said = [dim.dim_value if dim.HasField("dim_value") else None for dim in info.type.tensor_type.shape.dim]
    pairs = zip(said, fixed, strict=False)
    if len(fixed) != len(said) or any(dim is not None and size not in (dim, UNKNOWN_DIM) for dim, size in pairs):
        shown = ", ".join("?" if dim is None else str(dim) for dim in said)
        raise InvalidParameter(f"shapes gives {list(fixed)} for input {info.name!r}, which is [{shown}]")


def _is(dtype: np.dtype[np.generic], elem_type: int) -> bool:
    return int(helper.np_dtype_to_tensor_dtype(dtype)) == elem_type


def _opsets(file: OnnxFile) -> dict[str, int]:
    opsets = {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in file.proto.opset_import}
    version, newest = opsets.get("", FIRST_OPSET), onnx.defs.onnx_opset_version()
    if version < FIRST_OPSET:
        raise Unsupported(f"it uses operator set {version}; use {FIRST_OPSET} or later")
    if version > newest:
        raise Unsupported(
            f"it uses operator set {version}, but onnx {onnx.__version__} knows {newest}; install a newer onnx"
        )
    return opsets


def _drop_unused(model: Model) -> None:
    """Leave out the operations that no output needs: what a node's other way has left behind."""
    wanted = {output.index for output in model.outputs}
    kept = []
    for operation in reversed(model._operations):
        if wanted.intersection(operation.outputs):
            kept.append(operation)
            wanted.update(operation.inputs)
    model._operations[:] = reversed(kept)
