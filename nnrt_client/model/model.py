"""Models: tensors, the operations between them, and what a run takes and gives."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Literal, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import Buffer, Self

from nnrt_client.enums import DataType, Format, OperationType, TensorType, tensor_type_of
from nnrt_client.model import file as model_file
from nnrt_client.model.applying import Elements, apply
from nnrt_client.model.operations import operation_of
from nnrt_client.model.operations.record import OperationRecord, TensorRecord
from nnrt_client.model.operations.values import operand_array
from nnrt_client.model.parts import ModelParts
from nnrt_client.session.device import Device
from nnrt_client.session.support import ask_supported
from nnrt_client.tensors.legacy_tensor import LegacyTensor
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.backend import Support
from nnrt_hdi.errors import InvalidParameter, OperationForbidden
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array

DEFAULT_NAME = "NNR_Model"

# The operations whose number of outputs is not always one.
Several = Literal[
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
        return self._model._parts.tensors[self.index]


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
        self._parts = ModelParts(name)

    @property
    def name(self) -> str:
        """Name that the model was given, or the default one."""
        return self._parts.name

    @property
    def is_finished(self) -> bool:
        """True from `finish` on."""
        return self._parts.is_finished

    @property
    def inputs(self) -> tuple[ModelTensor, ...]:
        """Tensors that a run takes; none until they are specified."""
        return _handles(self, self._parts.inputs)

    @property
    def outputs(self) -> tuple[ModelTensor, ...]:
        """Tensors that a run gives; none until they are specified."""
        return _handles(self, self._parts.outputs)

    @property
    def operations(self) -> tuple[OperationType, ...]:
        """The operations, in the order they were added: that of the graph's nodes."""
        return tuple(added.declared.type for added in self._parts.operations)

    def add_tensor(self, desc: TensorDesc) -> ModelTensor:
        """Append a tensor as this desc, which is copied, describes it; -1 is a dimension known only in a run.

        It is a data tensor without data or quantization. Raises InvalidParameter for a dimension of 0 or
        below -1, and for more than 2^32 - 1 bytes.
        """
        if not isinstance(desc, TensorDesc):
            raise InvalidParameter(f"the desc is {desc!r}; give a TensorDesc")
        return ModelTensor(self._parts.append(TensorRecord(desc.copy())), self)

    def add_legacy_tensor(self, tensor: LegacyTensor) -> ModelTensor:
        """Append a tensor as NNRt did it until API 9: with its quantization and type, and in the format NHWC.

        Raises InvalidParameter as `add_tensor` does, and for a value that is not possible.
        """
        if not isinstance(tensor, LegacyTensor):
            raise InvalidParameter(f"the tensor is {tensor!r}; give a LegacyTensor")
        checked = tensor._checked()
        quant = checked.quant_param._to_spec() if checked.quant_param else ()
        return ModelTensor(self._parts.append(TensorRecord(checked._to_desc(), checked.type, quant=quant)), self)

    def set_tensor_data(self, tensor: TensorRef, data: Array | np.generic | Buffer) -> None:
        """Give a constant or parameter its elements, an array of its data type, or bytes; what may change is copied.

        Raises InvalidParameter unless the length is exactly the tensor's, or for a second time;
        OperationForbidden for a tensor with unknown dimensions, and for inputs and outputs of the model.
        """
        self._parts.require_open()
        self._parts.set_data(_index(self, tensor), data)

    def set_tensor_quant_params(self, tensor: TensorRef, quant_param: QuantParam) -> None:
        """Quantize a tensor with these parameters, which are copied, instead of earlier ones.

        Raises InvalidParameter unless scales, zero points and bits are equally many and all bits are 8; the
        tensor is then not quantized any more, as in NNRt.
        """
        if not isinstance(quant_param, QuantParam):
            raise InvalidParameter(f"the parameters are {quant_param!r}; give a QuantParam")
        self._parts.require_open()
        self._parts.quantize(_index(self, tensor), quant_param)

    def set_tensor_type(self, tensor: TensorRef, tensor_type: TensorType) -> None:
        """Say what a tensor is: data, or which parameter of which operation. The last call counts."""
        checked = tensor_type_of(tensor_type)
        self._parts.require_open()
        self._parts.tensors[_index(self, tensor)].type = checked

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
        parts = self._parts
        parts.require_open()
        reads, writes = parts.ends(_indices(self, inputs), _indices(self, outputs))
        tensors = parts.records(_indices(self, parameters))
        declared = operation_of(type)
        attrs = declared.attributes(parts.records(reads), len(writes), tensors)
        parts.operations.append(OperationRecord(declared, reads, writes, attrs, name))

    def specify_inputs_and_outputs(self, inputs: Sequence[TensorRef], outputs: Sequence[TensorRef]) -> None:
        """Name what a run takes and gives, in this order. A tensor named as input loses its data.

        Raises OperationForbidden when it has succeeded before.
        """
        _require_lists(inputs=inputs, outputs=outputs)
        parts = self._parts
        parts.require_open()
        if parts.inputs:
            raise OperationForbidden("inputs and outputs are specified already; a model's are specified once")
        parts.inputs, parts.outputs = parts.ends(_indices(self, inputs), _indices(self, outputs))

    def finish(self) -> None:
        """End the construction. Raises OperationForbidden unless there are operations, inputs and outputs.

        As in NNRt, whether the graph hangs together is checked when the model is first compiled, saved or asked about;
        that then raises InvalidParameter.
        """
        self._parts.finish()

    @property
    def digest(self) -> bytes:
        """SHA-256 of the graph and its weights, which the model computes once. Raises as `save` does."""
        return self._parts.digest

    def save(self, path: str | PathLike[str]) -> None:
        """Write the finished model with its constants into a file, in place of an earlier one.

        Raises OperationForbidden before `finish`, InvalidParameter, naming the place, where the parts form no graph (a
        cycle, or a tensor with no source or with two), InvalidPath where the directory is missing or not accessible,
        and OperationFailed where writing fails.
        """
        model_file.write(path, self._parts.graph)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Load the model in a file that `save` wrote: finished, with the same graph, digest and all.

        Its tensors are those of the graph, so that indices may be others than before. Where two operations become
        the same node `operations` has the general one: CONV2D for DEPTHWISE_CONV2D_NATIVE. Raises InvalidPath where
        the file is missing or not accessible, InvalidFile where it is no such file, or damaged.
        """
        graph = model_file.read(path)
        with model_file.named(path):
            parts = ModelParts.of_graph(graph)
        model = cls()
        model._parts = parts
        return model

    def supported_operations(self, device: Device) -> list[Support]:
        """Ask a device, per operation in the order they were added, if it runs it, and if not, why. Sends no weights.

        Raises OperationForbidden before `finish`, InvalidParameter as `save` does, and UnavailableDevice or
        ConnectionFailed where the device isn't reached.
        """
        if not isinstance(device, Device):
            raise InvalidParameter(f"the device is {device!r}; give a Device")
        return ask_supported(device._session(), self._parts.graph)

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
        record = TensorRecord(desc, quant=quant._to_spec() if quant else ())
        return ModelTensor(self._parts.append(record), self)

    def constant(
        self, array: ArrayLike, *, format: Format = Format.NONE, name: str = "", quant: QuantParam | None = None
    ) -> ModelTensor:
        """Append a constant with these elements, as `set_tensor_data`; plain numbers become BOOL, INT32 or FLOAT32.

        Quantized by `quant`, they stand for the real numbers (element - zero point) scale.
        """
        elements = operand_array(array, None, is_index=False)
        return ModelTensor(self._parts.append_array(elements, format, name, quant), self)

    @overload
    def apply(  # type: ignore[overload-overlap]  # the operations with several outputs are the narrower case
        self,
        type: Several,
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
        declared = operation_of(type)
        outputs = () if output is None else output if isinstance(output, Sequence) else (output,)
        added = apply(
            self._parts,
            declared,
            [_index(self, given) if isinstance(given, ModelTensor) else Elements(given) for given in operands],
            [wanted if isinstance(wanted, TensorDesc) else _index(self, wanted) for wanted in outputs],
            quant,
            name,
            parameters,
        )
        tensors = _handles(self, added)
        return tensors[0] if declared.outputs == (1, 1) else tensors


def parts_of(model: Model) -> ModelParts:
    """Return the parts of a model, for its importers, its compilations and its tests."""
    return model._parts


def model_of(graph: Graph) -> Model:
    """Return the finished model that has this graph. Raises InvalidFile for one that no model has."""
    model = Model()
    model._parts = ModelParts.of_graph(graph)
    return model


def _handles(model: Model, indices: Sequence[int]) -> tuple[ModelTensor, ...]:
    return tuple([ModelTensor(index, model) for index in indices])


def _indices(model: Model, tensors: Sequence[TensorRef]) -> list[int]:
    return [_index(model, tensor) for tensor in tensors]


def _index(model: Model, tensor: TensorRef) -> int:
    if isinstance(tensor, ModelTensor):
        if tensor.model is not model:
            raise InvalidParameter(f"tensor {tensor.index} belongs to another model; give one of this model")
        return tensor.index
    try:
        index = operator.index(tensor)
    except TypeError as error:
        raise InvalidParameter(f"{tensor!r} is no tensor; give a ModelTensor or its index") from error
    count = len(model._parts.tensors)
    if not 0 <= index < count:
        known = f"use 0..{count - 1}" if count else "the model has no tensors yet"
        raise InvalidParameter(f"tensor {index} does not exist; {known}")
    return index


def _require_lists(**lists: object) -> None:
    for name, given in lists.items():
        if not isinstance(given, Sequence):
            raise InvalidParameter(f"{name} is {given!r}; give a sequence of tensors")
