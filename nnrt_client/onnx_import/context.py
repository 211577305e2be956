"""State that all nodes of an import share: the file, the model under construction, problems and limits."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from onnx import GraphProto, NodeProto, ValueInfoProto

from nnrt_client.enums import Format
from nnrt_client.model.model import Model, parts_of
from nnrt_client.onnx_import.file import OnnxFile, declared_size, known_dtype, type_name
from nnrt_client.onnx_import.functions import local_functions
from nnrt_client.onnx_import.problems import NotImported, Problem
from nnrt_client.onnx_import.scope import Missing
from nnrt_client.onnx_import.shapes.dims import Dim, Dims, new_dim, shape_of
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value, data_type_of, value_of
from nnrt_hdi.errors import InvalidFile, InvalidParameter, NnrtError, OutOfMemory, Unsupported
from nnrt_hdi.graph import MAX_NODES, quoted_name
from nnrt_hdi.tensor import UNKNOWN_DIM, Array, format_shape

# Exceptions that functions of operators raise for nodes that violate ONNX's specification.
_CONTRADICTIONS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
# An import may compute at most _FREE_BYTES + _BYTES_PER_FILE_BYTE * size of the file, in bytes of constants.
_FREE_BYTES = 1 << 30
_BYTES_PER_FILE_BYTE = 8

MadeT = TypeVar("MadeT")
Owner = NodeProto | str | None


class Problems:
    """Parts of a file that can't be imported, with the reasons."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        # For each problem: the node of the graph or the name of the value that has it.
        self._owners: list[Owner] = []
        self.owner: Owner = None

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, text: str) -> None:
        self._texts.append(text)
        self._owners.append(self.owner)

    def truncate(self, count: int) -> None:
        """Drop all problems but the first `count`."""
        del self._texts[count:], self._owners[count:]

    @property
    def by_owner(self) -> list[tuple[Owner, str]]:
        """Problems, each with the node or value that has it."""
        return list(zip(self._owners, self._texts, strict=True))

    def guard(self, place: str, make: Callable[[], MadeT]) -> MadeT | None:
        """Return the result of `make`, or add a problem and return None if it fails.

        Errors that concern the whole file, such as InvalidFile, are raised.
        """
        try:
            return make()
        except (Unsupported, InvalidParameter) as error:
            self.add(f"{place}: {error}")
        except NnrtError as error:
            raise error.at(place) from error
        except _CONTRADICTIONS as error:
            self.add(f"{place}: its inputs and attributes do not fit each other ({error})")
        return None

    def raise_all(self) -> None:
        """Raise NotImported, which lists all problems, if there are any."""
        if self._texts:
            parts = "1 part of it" if len(self._texts) == 1 else f"{len(self._texts)} parts of it"
            listed = "".join(f"\n  {text}" for text in self._texts)
            problems = [_problem(owner, text) for owner, text in self.by_owner]
            raise NotImported(f"{parts} can't be imported:{listed}", problems=problems)


def _problem(owner: Owner, text: str) -> Problem:
    if not isinstance(owner, NodeProto):
        return Problem(text)
    name = owner.name or next(iter(owner.output), "")
    reason = text.removeprefix(f"{owner.op_type} node{quoted_name(name)}: ")
    return Problem(reason, owner.op_type, name)


class Context:
    """State of one import, shared by its node converters. `shapes` fix the shapes of inputs by name."""

    def __init__(self, file: OnnxFile, shapes: Mapping[str, Sequence[int]]) -> None:
        self.file = file
        self.model = Model(file.proto.graph.name or "ONNX model")
        self.functions = local_functions(file.proto)
        self.problems = Problems()
        self._shapes = dict(shapes)
        self._declared = {info.name: info for info in file.proto.graph.value_info}
        self._node_count = 0
        self._room = _FREE_BYTES + _BYTES_PER_FILE_BYTE * file.size_bytes
        self._owners: list[Owner] = []
        # What nodes compute alike, by what it is: `NodeBuilder.once`.
        self.shared: dict[Hashable, Any] = {}

    def set_owner(self, owner: Owner) -> None:
        """Attribute later operations and problems to a node of the graph, or to a value."""
        self._owners += [self.problems.owner] * (len(parts_of(self.model).operations) - len(self._owners))
        self.problems.owner = owner

    def operation_owners(self) -> list[Owner]:
        """Return for each operation of the model the node or value that it comes from."""
        self.set_owner(None)
        return self._owners

    def count_node(self) -> None:
        """Count a node. Raise InvalidFile if there are more than MAX_NODES."""
        self._node_count += 1
        if self._node_count > MAX_NODES:
            raise InvalidFile(f"it has more than {MAX_NODES} nodes, those of its functions included")

    def count_bytes(self, arrays: Sequence[Array | None]) -> None:
        """Count the bytes of arrays computed at import. Raise OutOfMemory beyond the limit."""
        self._room -= sum(array.nbytes for array in arrays if array is not None)
        if self._room < 0:
            raise OutOfMemory("the constants that it computes are far larger than those that it has")

    def constants(self, graph: GraphProto) -> dict[str, Value | Missing]:
        """Return the values of a graph's initializers by name."""
        values: dict[str, Value | Missing] = {}
        owner = self.problems.owner
        for tensor in graph.initializer:
            self.problems.owner = owner or tensor.name
            made = self.problems.guard("initializer", partial(self.file.value, self.model, tensor))
            values[tensor.name] = made or Missing()
        for sparse in graph.sparse_initializer:
            self.problems.owner = owner or sparse.values.name
            self.problems.add(f"initializer {sparse.values.name!r}: it is sparse; make it dense")
            values[sparse.values.name] = Missing()
        self.problems.owner = owner
        return values

    def input(self, info: ValueInfoProto) -> Value:
        """Add an input to the model as the file declares it. Raise Unsupported if NNRt has no such input."""
        if not info.type.HasField("tensor_type"):
            refuse(f"it is no tensor but a {info.type.WhichOneof('value')}")
        type_ = info.type.tensor_type
        dtype = known_dtype(type_.elem_type)
        if dtype is None:
            refuse(f"it is {type_name(type_.elem_type)}, which is no data type of NNRt")
        dims = self._dims(info)
        layout = Format.NCHW if len(dims) == 4 else Format.NONE
        return value_of(self.model.input(shape_of(dims), data_type_of(dtype), format=layout, name=info.name), dims)

    def substitute(self, name: str) -> Value | Missing:
        """Return a substitute for a value that can't be imported, so that its readers are still checked.

        It is an input of the type that the file declares for the value, or Missing if the file declares none.
        """
        info = self._declared.get(name)
        try:
            return Missing() if info is None else self.input(info)
        except NnrtError:
            return Missing()

    def check_inputs(self, inputs: Sequence[ValueInfoProto]) -> None:
        """Raise InvalidParameter if `shapes` don't fit the inputs. Add a problem if there are no inputs."""
        names = [info.name for info in inputs]
        unknown = set(self._shapes) - set(names)
        if unknown:
            known = ", ".join(map(repr, names)) or "none"
            raise InvalidParameter(f"shapes names {sorted(unknown)}; the inputs of the model are {known}")
        for info in inputs:
            if info.name in self._shapes and info.type.tensor_type.HasField("shape"):
                _require_fits(info, self._shapes[info.name])
        if not inputs:
            self.problems.add("it has no inputs, of which NNRt requires one")

    def _dims(self, info: ValueInfoProto) -> Dims:
        """Return the dimensions of an input. `shapes` replaces those that it fixes."""
        type_ = info.type.tensor_type
        fixed = self._shapes.get(info.name)
        if not type_.HasField("shape"):
            if fixed is None:
                refuse(
                    f"its rank is not known; give its shape: shapes={{{info.name!r}: (1, 3)}}, --shape {info.name}=1,3"
                )
            return tuple(dim if dim != UNKNOWN_DIM else new_dim() for dim in fixed)
        dims = tuple(
            size if size != UNKNOWN_DIM else Dim(dim.dim_param) if dim.dim_param else new_dim()
            for dim, size in ((dim, declared_size(dim)) for dim in type_.shape.dim)
        )
        if fixed is None:
            return dims
        return tuple(dim if size == UNKNOWN_DIM else size for dim, size in zip(dims, fixed, strict=True))


def _require_fits(info: ValueInfoProto, fixed: Sequence[int]) -> None:
    """Raise InvalidParameter for a fixed shape that contradicts the shape in the file."""
    declared = [declared_size(dim) for dim in info.type.tensor_type.shape.dim]
    pairs = zip(declared, fixed, strict=False)
    if len(fixed) != len(declared) or any(UNKNOWN_DIM not in pair and pair[0] != pair[1] for pair in pairs):
        raise InvalidParameter(f"shapes gives {list(fixed)} for input {info.name!r}, which is {format_shape(declared)}")
