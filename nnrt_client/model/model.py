"""Models: tensors, the operations between them, and what a run takes and gives."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from os import PathLike
from typing import Literal, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import Buffer, Self

from nnrt_client.enums import DataType, Format, OperationType, TensorType, tensor_type_of
from nnrt_client.model import file as model_file
from nnrt_client.model.operations import Operation, operation_of
from nnrt_client.model.operations.operation import MANY
from nnrt_client.model.operations.record import AddedOperation, OperationRecord, TensorRecord, inferred, lowered
from nnrt_client.model.operations.values import held_elements, is_empty, is_logical, operand_array, raw_array
from nnrt_client.session.device import Device
from nnrt_client.session.support import ask_supported
from nnrt_client.tensors.legacy_tensor import LegacyTensor
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor_desc import TensorDesc, api_data_type
from nnrt_hdi.backend import Support
from nnrt_hdi.enums import DataType as HdiDataType
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationForbidden
from nnrt_hdi.files.graph_file import graph_digest
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import UNKNOWN_DIM, Array, TensorSpec, data_type_of

DEFAULT_NAME = "NNR_Model"
MAX_TENSOR_BYTES = 2**32 - 1

# The operations whose number of outputs is not always one.
_Several = Literal[
    OperationType.DETECTION_POST_PROCESS,
    OperationType.LSTM,
    OperationType.SPLIT,
    OperationType.TOP_K,
    OperationType.UNSTACK,
]


@dataclass(frozen=True, slots=True)
class ModelTensor:
    """Tensor of a model: its index there, and its description. Made by the model."""

    index: int
    _model: "Model" = field(repr=False)

    @property
    def desc(self) -> TensorDesc:
        """A copy of its description."""
        return self._record.desc.copy()

    @property
    def model(self) -> "Model":
        """The model that the tensor belongs to."""
        return self._model

    @property
    def _record(self) -> TensorRecord:
        return self._model._tensors[self.index]


TensorRef = ModelTensor | SupportsIndex
Output = TensorRef | TensorDesc


class Model:
    """A model under construction, and from `finish` on one that never changes again.

    One thread at a time builds a model, for the methods that change it take no lock. Any number of threads may use a
    finished one, and any number of compilations.

    Tensors are added first, then the operations that read and write them, then the inputs and outputs are
    named and the model is finished. Wherever a method takes a tensor it takes a `ModelTensor` or its index.
    After `finish` every method that would change the model raises OperationForbidden. A call that raises has
    changed nothing, unless it says so.

    Operations are added tensor by tensor as NNRt has it, or by `apply`, which makes the tensors itself.
    """

    def __init__(self, name: str = DEFAULT_NAME) -> None:
        self._name = name
        self._tensors: list[TensorRecord] = []
        self._operations: list[OperationRecord] = []
        self._inputs: tuple[int, ...] = ()
        self._outputs: tuple[int, ...] = ()
        self._is_finished = False
        self._lowered: Graph | None = None
        self._digest: bytes | None = None

    @property
    def name(self) -> str:
        """Name that the model was given, or the default one."""
        return self._name

    @property
    def is_finished(self) -> bool:
        """True from `finish` on."""
        return self._is_finished

    @property
    def inputs(self) -> tuple[ModelTensor, ...]:
        """Tensors that a run takes; none until they are specified."""
        return self._handles(self._inputs)

    @property
    def outputs(self) -> tuple[ModelTensor, ...]:
        """Tensors that a run gives; none until they are specified."""
        return self._handles(self._outputs)

    @property
    def operations(self) -> tuple[OperationType, ...]:
        """The operations, in the order they were added: that of the graph's nodes."""
        return tuple(added.declared.type for added in self._operations)

    def add_tensor(self, desc: TensorDesc) -> ModelTensor:
        """Append a tensor as this desc, which is copied, describes it; -1 is a dimension known only in a run.

        It is a data tensor without data or quantization. Raises InvalidParameter for a dimension of 0 or
        below -1, and for more than 2^32 - 1 bytes.
        """
        if not isinstance(desc, TensorDesc):
            raise InvalidParameter(f"the desc is {desc!r}; give a TensorDesc")
        return self._append(TensorRecord(desc.copy()))

    def add_legacy_tensor(self, tensor: LegacyTensor) -> ModelTensor:
        """Append a tensor as NNRt did it until API 9: with its quantization and type, and in the format NHWC.

        Raises InvalidParameter as `add_tensor` does, and for a value that is not possible.
        """
        if not isinstance(tensor, LegacyTensor):
            raise InvalidParameter(f"the tensor is {tensor!r}; give a LegacyTensor")
        checked = tensor._checked()
        quant = checked.quant_param._to_spec() if checked.quant_param else ()
        return self._append(TensorRecord(checked._to_desc(), checked.type, quant=quant))

    def _append(self, record: TensorRecord) -> ModelTensor:
        self._require_open()
        shape, size_bytes = record.desc.shape or (), record.desc.item_size
        for axis, dim in enumerate(shape):
            if dim == 0 or dim < UNKNOWN_DIM:
                raise InvalidParameter(f"dimension {axis} of shape {list(shape)} is {dim}; use -1, or 1 or more")
            size_bytes *= abs(dim)
        if size_bytes > MAX_TENSOR_BYTES:
            raise InvalidParameter(f"shape {list(shape)} has {size_bytes} bytes; use at most {MAX_TENSOR_BYTES}")
        self._tensors.append(record)
        return ModelTensor(len(self._tensors) - 1, self)

    def set_tensor_data(self, tensor: TensorRef, data: Array | np.generic | Buffer) -> None:
        """Give a constant or parameter its elements, an array of its data type, or bytes; what may change is copied.

        Raises InvalidParameter unless the length is exactly the tensor's, or for a second time;
        OperationForbidden for a tensor with unknown dimensions, and for inputs and outputs of the model.
        """
        array = raw_array(data)
        self._require_open()
        index = self._index(tensor)
        target, place = self._tensors[index], self._place(index)
        if index in (*self._inputs, *self._outputs):
            raise OperationForbidden("it is an input or output of the model, which has no data", place=place)
        if target.data is not None:
            raise InvalidParameter("it has data already; a tensor gets them once", place=place)
        if UNKNOWN_DIM in (target.desc.shape or ()):
            raise OperationForbidden("it has unknown dimensions; only fixed shapes have data", place=place)
        try:
            target.data = held_elements(data, array, target.spec)
        except NnrtError as error:
            raise error.at(place) from error

    def set_tensor_quant_params(self, tensor: TensorRef, quant_param: QuantParam) -> None:
        """Quantize a tensor with these parameters, which are copied, instead of earlier ones.

        Raises InvalidParameter unless scales, zero points and bits are equally many and all bits are 8; the
        tensor is then not quantized any more, as in NNRt.
        """
        if not isinstance(quant_param, QuantParam):
            raise InvalidParameter(f"the parameters are {quant_param!r}; give a QuantParam")
        self._require_open()
        index = self._index(tensor)
        self._tensors[index].quantize(())
        try:
            self._tensors[index].quantize(quant_param._to_spec())
        except NnrtError as error:
            raise error.at(self._place(index)) from error

    def set_tensor_type(self, tensor: TensorRef, tensor_type: TensorType) -> None:
        """Say what a tensor is: data, or which parameter of which operation. The last call counts."""
        checked = tensor_type_of(tensor_type)
        self._require_open()
        self._tensors[self._index(tensor)].type = checked

    def add_operation(
        self,
        type: OperationType,
        parameters: Sequence[TensorRef],
        inputs: Sequence[TensorRef],
        outputs: Sequence[TensorRef],
        *,
        name: str = "",
    ) -> None:
        """Append an operation that reads `inputs`, writes `outputs` and is configured by parameter tensors.

        Parameters that are left out have the operation's defaults. Raises InvalidParameter where the
        operation doesn't take what it is given: see `nnrt_client.model.operations`. Whether shapes and data types
        of the inputs and outputs fit is for the device to say.
        """
        _require_lists(parameters=parameters, inputs=inputs, outputs=outputs)
        self._require_open()
        reads, writes = self._ends(inputs, outputs)
        tensors = self._records([self._index(parameter) for parameter in parameters])
        declared = operation_of(type)
        attrs = declared.attributes(self._records(reads), len(writes), tensors)
        self._operations.append(OperationRecord(declared, reads, writes, attrs, name))

    def specify_inputs_and_outputs(self, inputs: Sequence[TensorRef], outputs: Sequence[TensorRef]) -> None:
        """Name what a run takes and gives, in this order. A tensor named as input loses its data.

        Raises OperationForbidden when it has succeeded before.
        """
        _require_lists(inputs=inputs, outputs=outputs)
        self._require_open()
        if self._inputs:
            raise OperationForbidden("inputs and outputs are specified already; a model's are specified once")
        self._inputs, self._outputs = self._ends(inputs, outputs)

    def finish(self) -> None:
        """End the construction. Raises OperationForbidden unless there are operations, inputs and outputs.

        As in NNRt, whether the graph hangs together is checked when the model is first compiled, saved or asked about;
        that then raises InvalidParameter.
        """
        self._require_open()
        if not self._tensors or not self._operations:
            what = "operations" if self._tensors else "tensors"
            raise OperationForbidden(f"the model has no {what}; add them before it is finished")
        if not self._inputs:
            raise OperationForbidden("inputs and outputs are not specified; name them before the model is finished")
        self._is_finished = True

    @property
    def _graph(self) -> Graph:
        """The model as the device interface has it; made once. Only the tensors that operations use are left.

        Raises OperationForbidden before `finish`, and InvalidParameter, naming the place, when the parts
        don't form a graph: a cycle, or a tensor with no source or with two.
        """
        if not self._is_finished:
            raise OperationForbidden("the model is not finished; finish it first")
        if self._lowered is None:
            self._lowered = lowered(self.name, self._tensors, self._operations, self._inputs, self._outputs)
        return self._lowered

    @property
    def digest(self) -> bytes:
        """SHA-256 of the graph and its weights, which the model computes once. Raises as `save` does."""
        if self._digest is None:
            self._digest = graph_digest(self._graph)
        return self._digest

    def save(self, path: str | PathLike[str]) -> None:
        """Write the finished model with its constants into a file, in place of an earlier one.

        Raises OperationForbidden before `finish`, InvalidParameter, naming the place, where the parts form no graph (a
        cycle, or a tensor with no source or with two), InvalidPath where the directory is missing or not accessible,
        and OperationFailed where writing fails.
        """
        model_file.write(path, self._graph)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Load the model in a file that `save` wrote: finished, with the same graph, digest and all.

        Its tensors are those of the graph, so that indices may be others than before. Where two operations become
        the same node `operations` has the general one: CONV2D for DEPTHWISE_CONV2D_NATIVE. Raises InvalidPath where
        the file is missing or not accessible, InvalidFile where it is no such file, or damaged.
        """
        graph = model_file.read(path)
        with model_file.named(path):
            return cls._from_graph(graph)

    @classmethod
    def _from_graph(cls, graph: Graph) -> Self:
        """Make the finished model that has this graph. Raises InvalidFile for one that no model has."""
        model = cls(graph.name)
        model._tensors, model._operations = model_file.records(graph)
        model._inputs, model._outputs, model._lowered = graph.inputs, graph.outputs, graph
        model._is_finished = True
        return model

    def _rename(self, tensor: TensorRef, name: str) -> None:
        """Give a tensor another name, even after an operation has written it."""
        self._require_open()
        self._tensors[self._index(tensor)].rename(name)

    def _drop_unused_operations(self) -> None:
        """Leave out the operations that no output of the model needs."""
        self._require_open()
        wanted = set(self._outputs)
        kept = []
        for operation in reversed(self._operations):
            if wanted.intersection(operation.outputs):
                kept.append(operation)
                wanted.update(operation.inputs)
        self._operations = kept[::-1]

    @property
    def _last_operation(self) -> AddedOperation:
        """The operation that was added last."""
        last = self._operations[-1]
        return AddedOperation(
            last.declared.node_type, last.attrs, self._records(last.inputs), self._records(last.outputs)
        )

    def supported_operations(self, device: Device) -> list[Support]:
        """Ask a device, per operation in the order they were added, if it runs it, and if not, why. Sends no weights.

        Raises OperationForbidden before `finish`, InvalidParameter as `save` does, and UnavailableDevice or
        ConnectionFailed where the device isn't reached.
        """
        if not isinstance(device, Device):
            raise InvalidParameter(f"the device is {device!r}; give a Device")
        return ask_supported(device._session(), self._graph)

    def input(
        self,
        shape: Sequence[int],
        data_type: DataType = DataType.FLOAT32,
        *,
        format: Format = Format.NONE,
        name: str = "",
        quant: QuantParam | None = None,
    ) -> ModelTensor:
        """Append a tensor to be named as an input, quantized by `quant`; an empty shape is that of a scalar."""
        desc = TensorDesc(data_type, shape if len(shape) else None, format, name)
        return self._append(TensorRecord(desc, quant=quant._to_spec() if quant else ()))

    def constant(
        self, array: ArrayLike, *, format: Format = Format.NONE, name: str = "", quant: QuantParam | None = None
    ) -> ModelTensor:
        """Append a constant with these elements, as `set_tensor_data`; plain numbers become BOOL, INT32 or FLOAT32.

        Quantized by `quant`, they stand for the real numbers (element - zero point) scale.
        """
        return self._add_array(operand_array(array, None, is_index=False), format, name, quant)

    @overload
    def apply(  # type: ignore[overload-overlap]  # the operations with several outputs are the narrower case
        self,
        type: _Several,
        /,
        *operands: ModelTensor | ArrayLike,
        output: Output | Sequence[Output] | None = ...,
        quant: QuantParam | Sequence[QuantParam | None] | None = ...,
        name: str = ...,
        **parameters: object,
    ) -> tuple[ModelTensor, ...]: ...
    @overload
    def apply(
        self,
        type: OperationType,
        /,
        *operands: ModelTensor | ArrayLike,
        output: Output | Sequence[Output] | None = ...,
        quant: QuantParam | Sequence[QuantParam | None] | None = ...,
        name: str = ...,
        **parameters: object,
    ) -> ModelTensor: ...
    def apply(
        self,
        type: OperationType,
        /,
        *operands: ModelTensor | ArrayLike,
        output: Output | Sequence[Output] | None = None,
        quant: QuantParam | Sequence[QuantParam | None] | None = None,
        name: str = "",
        **parameters: object,
    ) -> ModelTensor | tuple[ModelTensor, ...]:
        """Append an operation on tensors or values, with everything it needs, and return what it gives.

            y = model.apply(OperationType.CONV2D, x, weight, bias, stride=(1, 1), activation=FuseType.RELU)

        Operands that are no ModelTensor become constants: arrays as they are, other numbers in the data type
        of the first tensor operand (FLOAT32 if that is quantized), or as INT32 or INT64 where the operation takes
        integers (axes, shapes).
        Parameters are named like the attributes of HDI's struct in snake_case, but `activation` for
        activationType and `global_` for global; their values are numbers, booleans, sequences or members of
        the API's enums. None or an empty sequence stands for the default.

        Shape and data type of the output are inferred, unless `output` is a tensor to write, or the desc of
        one to add; a sequence for several. Of quantized operands the output is quantized, too: `quant` says how
        (a sequence for several outputs), unless `output` is a tensor, which has its own parameters; what is only
        moved keeps those it has.

            y = model.apply(OperationType.ADD, a, b, quant=QuantParam([0.05], [-3]))

        `name` names the operation and its output; several outputs are
        `<name>:<position>`. Operations that may have several outputs return a tuple. On any error nothing is
        added.
        """
        self._require_open()
        tensors, operations = len(self._tensors), len(self._operations)
        try:
            return self._apply(operation_of(type), operands, output, quant, name, parameters)
        except BaseException:
            del self._tensors[tensors:], self._operations[operations:]
            raise

    def _apply(
        self,
        declared: Operation,
        operands: Sequence[ModelTensor | ArrayLike],
        output: Output | Sequence[Output] | None,
        quant: QuantParam | Sequence[QuantParam | None] | None,
        name: str,
        parameters: dict[str, object],
    ) -> ModelTensor | tuple[ModelTensor, ...]:
        given = [self._add_parameter(declared, *item) for item in parameters.items() if not is_empty(item[1])]
        inputs = self._add_operands(declared, operands)
        wanted: Sequence[Output]
        wanted = () if output is None else output if isinstance(output, Sequence) else (output,)
        declared_specs = [
            tensor._to_spec() if isinstance(tensor, TensorDesc) else self._tensors[self._index(tensor)].spec
            for tensor in wanted
        ]
        params = [
            param._to_spec() if param else () for param in ((quant,) if isinstance(quant, QuantParam) else quant or ())
        ]
        if params and not all(isinstance(tensor, TensorDesc) for tensor in wanted):
            raise InvalidParameter("quant is given for a tensor that is there already; use set_tensor_quant_params")
        operand_records = self._records(inputs)
        attrs = declared.attributes(operand_records, len(wanted) or None, self._records(given))
        specs = inferred(declared, attrs, operand_records, declared_specs, params, name)
        outputs = [
            self._add_output(spec, tensor, name if len(specs) == 1 or not name else f"{name}:{at}")
            if tensor is None or isinstance(tensor, TensorDesc)
            else self._handles([self._index(tensor)])[0]
            for at, (spec, tensor) in enumerate(zip_longest(specs, wanted))
        ]
        self._operations.append(OperationRecord(declared, *self._ends(inputs, outputs), attrs, name))
        return outputs[0] if declared.outputs == (1, 1) else tuple(outputs)

    def _add_operands(self, declared: Operation, operands: Sequence[ModelTensor | ArrayLike]) -> list[int]:
        """Indices of the operands, those that are no tensors yet added as constants."""
        if all(isinstance(given, ModelTensor) for given in operands):
            return [self._index(given) for given in operands]  # type: ignore[arg-type]  # as has been looked at
        known = {at: self._index(given) for at, given in enumerate(operands) if isinstance(given, ModelTensor)}
        types = [self._tensors[index].spec for index in known.values()]
        indices = []
        for at, given in enumerate(operands):
            if isinstance(given, ModelTensor):
                indices.append(known[at])
                continue
            try:
                array = operand_array(given, _data_type_beside(types, given), is_index=declared.is_index(at))
                indices.append(self._add_array(array).index)
            except NnrtError as error:
                raise error.at(f"{declared.type.name} operand {at}") from error
        return indices

    def _add_parameter(self, declared: Operation, keyword: str, value: object) -> int:
        parameter = declared.parameter(keyword)
        try:
            return self._add_array(parameter.encode(value), type=parameter.tensor_types[0]).index
        except NnrtError as error:
            raise error.at(f"{declared.type.name} {parameter.place}") from error

    def _add_array(
        self,
        array: Array,
        format: Format = Format.NONE,
        name: str = "",
        quant: QuantParam | None = None,
        type: TensorType = TensorType.TENSOR,
    ) -> ModelTensor:
        desc = TensorDesc(api_data_type(data_type_of(array.dtype)), array.shape or None, format, name)
        tensor = self._append(TensorRecord(desc, type, quant=quant._to_spec() if quant else ()))
        record = tensor._record
        record.data = held_elements(array, array, record.spec)
        return tensor

    def _add_output(self, spec: TensorSpec, declared: TensorDesc | None, name: str) -> ModelTensor:
        """Add an output as it was inferred; its name is its own, not that of an input it resembles."""
        desc = TensorDesc._from_spec(spec)
        desc.name = (declared.name if declared else "") or name
        return self._append(TensorRecord(desc, quant=spec.quant, known=spec))

    def _records(self, indices: Sequence[int]) -> list[TensorRecord]:
        return [self._tensors[index] for index in indices]

    def _handles(self, indices: Sequence[int]) -> tuple[ModelTensor, ...]:
        return tuple([ModelTensor(index, self) for index in indices])

    def _place(self, index: int) -> str:
        name = self._tensors[index].desc.name
        return f"tensor {index}" + (f" {name!r}" if name else "")

    def _require_open(self) -> None:
        if self._is_finished:
            raise OperationForbidden("the model is finished; it can't be changed any more")

    def _index(self, tensor: TensorRef) -> int:
        if isinstance(tensor, ModelTensor):
            if tensor.model is not self:
                raise InvalidParameter(f"tensor {tensor.index} belongs to another model; give one of this model")
            return tensor.index
        try:
            index = operator.index(tensor)
        except TypeError as error:
            raise InvalidParameter(f"{tensor!r} is no tensor; give a ModelTensor or its index") from error
        count = len(self._tensors)
        if not 0 <= index < count:
            known = f"use 0..{count - 1}" if count else "the model has no tensors yet"
            raise InvalidParameter(f"tensor {index} does not exist; {known}")
        return index

    def _ends(
        self, inputs: Sequence[TensorRef], outputs: Sequence[TensorRef]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The indices of inputs and outputs, which have no tensor in common."""
        reads, writes = self._data_indices("inputs", inputs), self._data_indices("outputs", outputs)
        for index in reads:
            if index in writes:
                raise InvalidParameter(f"{self._place(index)} is both input and output; use different tensors")
        return reads, writes

    def _data_indices(self, what: str, tensors: Sequence[TensorRef]) -> tuple[int, ...]:
        """The indices of 1 to 200 data tensors."""
        if not 1 <= len(tensors) <= MANY:
            raise InvalidParameter(f"there are {len(tensors)} {what}; give 1 to {MANY}")
        indices = tuple([self._index(tensor) for tensor in tensors])
        for index in indices:
            if self._tensors[index].type is not TensorType.TENSOR:
                type_ = self._tensors[index].type.name
                raise InvalidParameter(
                    f"it is the parameter {type_}; give data tensors as {what}", place=self._place(index)
                )
        return indices


def _require_lists(**lists: object) -> None:
    for name, given in lists.items():
        if not isinstance(given, Sequence):
            raise InvalidParameter(f"{name} is {given!r}; give a sequence of tensors")


def _data_type_beside(tensors: Sequence[TensorSpec], given: object) -> HdiDataType | None:
    """The data type of a plain number beside these tensors: that of the first, but a number is no condition."""
    logical = is_logical(given)
    for spec in tensors:
        if logical or spec.data_type is not HdiDataType.BOOL:
            return HdiDataType.FLOAT32 if spec.is_quantized else spec.data_type
    return None
