"""Parts of a model (tensors, and operations that refer to them by index), and the graph that they form."""

from collections.abc import Sequence

import numpy as np
from typing_extensions import Buffer, Self

from nnrt_client.enums import Format, TensorType
from nnrt_client.model import file as model_file
from nnrt_client.model.operations.operation import MANY
from nnrt_client.model.operations.record import AddedOperation, OperationRecord, TensorRecord, lower
from nnrt_client.model.operations.values import convert_elements, view_data
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor_desc import TensorDesc, api_data_type
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationForbidden
from nnrt_hdi.files.graph_file import graph_digest
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import UNKNOWN_DIM, Array, data_type_of

MAX_TENSOR_BYTES = 2**32 - 1


class ModelParts:
    """Tensors, operations, inputs and outputs of one model."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tensors: list[TensorRecord] = []
        self.operations: list[OperationRecord] = []
        self.inputs: tuple[int, ...] = ()
        self.outputs: tuple[int, ...] = ()
        self.is_finished = False
        self._lowered: Graph | None = None
        self._digest: bytes | None = None

    @classmethod
    def from_graph(cls, graph: Graph) -> Self:
        """Return the parts of the finished model that has this graph; raise InvalidFile if no model has it."""
        parts = cls(graph.name)
        parts.tensors, parts.operations = model_file.records(graph)
        parts.inputs, parts.outputs, parts._lowered = graph.inputs, graph.outputs, graph
        parts.is_finished = True
        return parts

    @property
    def graph(self) -> Graph:
        """Graph of the device interface for the model, made once, with only the tensors that operations use.

        Raises OperationForbidden before `finish`, and InvalidParameter, with the tensor or operation at fault, if the
        parts form no graph: there is a cycle, or a tensor with no source or with two.
        """
        if not self.is_finished:
            raise OperationForbidden("the model is not finished; finish it first")
        if self._lowered is None:
            self._lowered = lower(self.name, self.tensors, self.operations, self.inputs, self.outputs)
        return self._lowered

    @property
    def digest(self) -> bytes:
        """SHA-256 of the graph and its weights, computed once."""
        if self._digest is None:
            self._digest = graph_digest(self.graph)
        return self._digest

    def append(self, record: TensorRecord) -> int:
        """Append a tensor and return its index; raise InvalidParameter for an impossible or too large shape."""
        self.require_open()
        shape, size_bytes = record.desc.shape or (), record.desc.item_size
        for axis, dim in enumerate(shape):
            if dim == 0 or dim < UNKNOWN_DIM:
                raise InvalidParameter(f"dimension {axis} of shape {list(shape)} is {dim}; use -1, or 1 or more")
            size_bytes *= abs(dim)
        if size_bytes > MAX_TENSOR_BYTES:
            raise InvalidParameter(f"shape {list(shape)} has {size_bytes} bytes; use at most {MAX_TENSOR_BYTES}")
        self.tensors.append(record)
        return len(self.tensors) - 1

    def append_array(
        self,
        array: Array,
        format: Format = Format.NONE,
        name: str = "",
        quant: QuantParam | None = None,
        type: TensorType = TensorType.TENSOR,
    ) -> int:
        """Append a constant or a parameter with these elements, and return its index."""
        desc = TensorDesc(api_data_type(data_type_of(array.dtype)), array.shape or None, format, name)
        record = TensorRecord(desc, type, quant=quant._to_spec() if quant else ())
        index = self.append(record)
        record.data = convert_elements(array, array, record.spec)
        return index

    def set_data(self, index: int, data: Array | np.generic | Buffer) -> None:
        """Set the elements of a tensor, see `Model.set_tensor_data`."""
        array = view_data(data)
        target, place = self.tensors[index], self.place(index)
        if index in (*self.inputs, *self.outputs):
            raise OperationForbidden("it is an input or output of the model, which has no data", place=place)
        if target.data is not None:
            raise InvalidParameter("it has data already; a tensor gets them once", place=place)
        if UNKNOWN_DIM in (target.desc.shape or ()):
            raise OperationForbidden("it has unknown dimensions; only fixed shapes have data", place=place)
        try:
            target.data = convert_elements(data, array, target.spec)
        except NnrtError as error:
            raise error.at(place) from error

    def quantize(self, index: int, quant_param: QuantParam) -> None:
        """Quantize a tensor, see `Model.set_tensor_quant_params`."""
        self.tensors[index].quantize(())
        try:
            self.tensors[index].quantize(quant_param._to_spec())
        except NnrtError as error:
            raise error.at(self.place(index)) from error

    def rename(self, index: int, name: str) -> None:
        """Rename a tensor, even after an operation has written it."""
        self.require_open()
        self.tensors[index].rename(name)

    def finish(self) -> None:
        """Finish the model, see `Model.finish`."""
        self.require_open()
        if not self.tensors or not self.operations:
            what = "operations" if self.tensors else "tensors"
            raise OperationForbidden(f"the model has no {what}; add them before it is finished")
        if not self.inputs:
            raise OperationForbidden("inputs and outputs are not specified; name them before the model is finished")
        self.is_finished = True

    def drop_unused_operations(self) -> None:
        """Remove the operations that no output of the model needs."""
        self.require_open()
        wanted = set(self.outputs)
        kept = []
        for operation in reversed(self.operations):
            if wanted.intersection(operation.outputs):
                kept.append(operation)
                wanted.update(operation.inputs)
        self.operations = kept[::-1]

    @property
    def last_operation(self) -> AddedOperation:
        """Operation that was added last."""
        last = self.operations[-1]
        return AddedOperation(
            last.declared.node_type, last.attrs, self.records(last.inputs), self.records(last.outputs)
        )

    def records(self, indices: Sequence[int]) -> list[TensorRecord]:
        """Return the tensors with these indices."""
        return [self.tensors[index] for index in indices]

    def place(self, index: int) -> str:
        """Return the name of a tensor for messages."""
        name = self.tensors[index].desc.name
        return f"tensor {index}" + (f" {name!r}" if name else "")

    def require_open(self) -> None:
        """Raise OperationForbidden once the model is finished."""
        if self.is_finished:
            raise OperationForbidden("the model is finished; it can't be changed any more")

    def check_ends(self, inputs: Sequence[int], outputs: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the indices of inputs and outputs; raise InvalidParameter if a tensor is both, or isn't data."""
        reads, writes = self._require_data("inputs", inputs), self._require_data("outputs", outputs)
        for index in reads:
            if index in writes:
                raise InvalidParameter(f"{self.place(index)} is both input and output; use different tensors")
        return reads, writes

    def _require_data(self, what: str, indices: Sequence[int]) -> tuple[int, ...]:
        """Return the indices; raise InvalidParameter unless they are those of 1 to 200 data tensors."""
        if not 1 <= len(indices) <= MANY:
            raise InvalidParameter(f"there are {len(indices)} {what}; give 1 to {MANY}")
        for index in indices:
            if self.tensors[index].type is not TensorType.TENSOR:
                type_ = self.tensors[index].type.name
                raise InvalidParameter(
                    f"it is the parameter {type_}; give data tensors as {what}", place=self.place(index)
                )
        return tuple(indices)
