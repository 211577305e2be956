"""Models: tensors, the operations between them, and the inputs and outputs of a run."""

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
from nnrt_client.model.operations.values import read_operand
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

# Operations whose number of outputs is not always one.
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
        """Copy of the tensor's description."""
        return self._record.desc.copy()

    @property
    def model(self) -> "Model":
        """Model that the tensor belongs to."""
        return self._model

    @property
    def _record(self) -> TensorRecord:
        return self._model._parts.tensors[self.index]


TensorRef = ModelTensor | SupportsIndex
Output = TensorRef | TensorDesc


class Model:
    """Model under construction, which never changes again once it is finished.

    Tensors are added first, then the operations that read and write them. Then the inputs and outputs are named, and
    the model is finished. Operations are added tensor by tensor as in NNRt, or by `apply`, which makes the tensors
    itself. A method that takes a tensor takes a `ModelTensor` or its index. After `finish` every method that would
    change the model raises OperationForbidden. A call that raises has changed nothing, unless its description says so.

    Only one thread at a time may build a model, because the methods that change it take no lock. Any number of threads
    and compilations may use a finished model.
    """

    def __init__(self, name: str = DEFAULT_NAME) -> None:
        self._parts = ModelParts(name)

    @property
    def name(self) -> str:
        """Name that the model was given, or the default one."""
        return self._parts.name

    @property
    def is_finished(self) -> bool:
        """True once the model is finished."""
        return self._parts.is_finished

    @property
    def inputs(self) -> tuple[ModelTensor, ...]:
        """Tensors that a run takes; none before they are specified."""
        return _handles(self, self._parts.inputs)

    @property
    def outputs(self) -> tuple[ModelTensor, ...]:
        """Tensors that a run returns; none before they are specified."""
        return _handles(self, self._parts.outputs)

    @property
    def operations(self) -> tuple[OperationType, ...]:
        """Types of the operations, in the order in which they were added, which is that of the graph's nodes."""
        return tuple(added.declared.type for added in self._parts.operations)

    def add_tensor(self, desc: TensorDesc) -> ModelTensor:
        """Return a new data tensor of the model, with a copy of this description, without elements and quantization.

        A dimension of -1 is known only in a run.

        Raises:
            InvalidParameter: `desc` is no TensorDesc, a dimension is 0 or below -1, or the tensor has more than 2^32 -
                1 bytes.
        """
        if not isinstance(desc, TensorDesc):
            raise InvalidParameter(f"the desc is {desc!r}; give a TensorDesc")
        return ModelTensor(self._parts.append(TensorRecord(desc.copy())), self)

    def add_legacy_tensor(self, tensor: LegacyTensor) -> ModelTensor:
        """Return a new tensor of the model as of NNRt until API 9: with its quantization and type, in the format NHWC.

        Raises:
            InvalidParameter: As `add_tensor` does, and for an impossible value.
        """
        if not isinstance(tensor, LegacyTensor):
            raise InvalidParameter(f"the tensor is {tensor!r}; give a LegacyTensor")
        checked = tensor._checked()
        quant = checked.quant_param._to_spec() if checked.quant_param else ()
        return ModelTensor(self._parts.append(TensorRecord(checked._to_desc(), checked.type, quant=quant)), self)

    def set_tensor_data(self, tensor: TensorRef, data: Array | np.generic | Buffer) -> None:
        """Set a tensor's elements from an array of its data type, or from bytes. Only immutable bytes aren't copied.

        Raises:
            InvalidParameter: The length is not the tensor's, or the tensor has data already.
            OperationForbidden: The tensor has unknown dimensions, or is an input or output.
        """
        self._parts.require_open()
        self._parts.set_data(_index(self, tensor), data)

    def set_tensor_quant_params(self, tensor: TensorRef, quant_param: QuantParam) -> None:
        """Quantize a tensor with a copy of these parameters, which replaces earlier ones.

        Raises:
            InvalidParameter: Scales, zero points and bits differ in number, or bits are not 8. As in NNRt, the tensor
                then has no parameters, not even its earlier ones.
        """
        if not isinstance(quant_param, QuantParam):
            raise InvalidParameter(f"the parameters are {quant_param!r}; give a QuantParam")
        self._parts.require_open()
        self._parts.quantize(_index(self, tensor), quant_param)

    def set_tensor_type(self, tensor: TensorRef, tensor_type: TensorType) -> None:
        """Set whether a tensor is data, or which parameter of which operation it is; a later call overrides this."""
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

        Parameters that are left out have the operation's defaults. The device, and not this call, checks whether shapes
        and data types of the inputs and outputs fit.

        Raises:
            InvalidParameter: The operation doesn't take what it is given, see `nnrt_client.model.operations`.
        """
        _require_lists(parameters=parameters, inputs=inputs, outputs=outputs)
        parts = self._parts
        parts.require_open()
        reads, writes = parts.check_ends(_indices(self, inputs), _indices(self, outputs))
        tensors = parts.records(_indices(self, parameters))
        declared = operation_of(type)
        attrs = declared.attributes(parts.records(reads), len(writes), tensors)
        parts.operations.append(OperationRecord(declared, reads, writes, attrs, name))

    def specify_inputs_and_outputs(self, inputs: Sequence[TensorRef], outputs: Sequence[TensorRef]) -> None:
        """Name the inputs and outputs of a run, in this order; a tensor that is named as an input loses its data.

        Raises:
            InvalidParameter: There are none or more than 200 of them, or a tensor is both or is a parameter.
            OperationForbidden: This has succeeded before.
        """
        _require_lists(inputs=inputs, outputs=outputs)
        parts = self._parts
        parts.require_open()
        if parts.inputs:
            raise OperationForbidden("inputs and outputs are specified already; a model's are specified once")
        parts.inputs, parts.outputs = parts.check_ends(_indices(self, inputs), _indices(self, outputs))

    def finish(self) -> None:
        """Finish the model, so that it can be compiled and never changes again.

        As in NNRt, whether the parts form a graph is checked when the model is first compiled, saved or asked about,
        which then raises InvalidParameter.

        Raises:
            OperationForbidden: There are no operations, inputs or outputs.
        """
        self._parts.finish()

    @property
    def digest(self) -> bytes:
        """SHA-256 of the graph and its weights, computed once; this raises as `save` does."""
        return self._parts.digest

    def save(self, path: str | PathLike[str]) -> None:
        """Write the finished model with its constants into a file, in place of an earlier one.

        Raises:
            OperationForbidden: The model is not finished.
            InvalidParameter: The parts form no graph: there is a cycle, or a tensor with no source or with two.
            InvalidPath: The directory is missing or not accessible.
            OperationFailed: Writing fails.
        """
        model_file.write(path, self._parts.graph)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Return the model in a file that `save` wrote, finished and with the same graph and digest.

        Indices may differ from before, because its tensors are those of the graph. Where two operations become the same
        node, `operations` has the general one: CONV2D for DEPTHWISE_CONV2D_NATIVE.

        Raises:
            InvalidPath: The file is missing or not accessible.
            InvalidFile: The file is of another kind, or damaged.
        """
        graph = model_file.read(path)
        with model_file.name_path_in_errors(path):
            parts = ModelParts.from_graph(graph)
        model = cls()
        model._parts = parts
        return model

    def supported_operations(self, device: Device) -> list[Support]:
        """Ask a device which operations it runs, without sending weights.

        Returns:
            Per operation, in the order in which they were added, whether the device runs it, and if not, why.

        Raises:
            OperationForbidden: The model is not finished.
            InvalidParameter: `device` is no Device, or the parts form no graph, as in `save`.
            UnavailableDevice: The device is gone.
            ConnectionFailed: The device was not reached.
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
        """Append a tensor for `specify_inputs_and_outputs` to name as an input; an empty shape is that of a scalar."""
        desc = TensorDesc(data_type, shape if len(shape) else None, format, name)
        record = TensorRecord(desc, quant=quant._to_spec() if quant else ())
        return ModelTensor(self._parts.append(record), self)

    def constant(
        self, array: ArrayLike, *, format: Format = Format.NONE, name: str = "", quant: QuantParam | None = None
    ) -> ModelTensor:
        """Return a new constant of the model with these elements, copied as by `set_tensor_data`.

        Plain numbers become BOOL, INT32, INT64 or FLOAT32. With `quant`, x stands for scale * (x - zero point).
        """
        elements = read_operand(array, None, is_index=False)
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
        """Append an operation on tensors or values, with its constants, parameters and outputs, and return the outputs.

            y = model.apply(OperationType.CONV2D, x, weight, bias, stride=(1, 1), activation=FuseType.RELU)
            z = model.apply(OperationType.ADD, a, b, quant=QuantParam([0.05], [-3]))

        An error leaves the model as it was.

        Args:
            type: Type of the operation.
            *operands: Tensors, or values that become constants: arrays as they are; other numbers in the data type of
                the first tensor operand (FLOAT32 if that is quantized), or as INT32 or INT64 where the operation takes
                integers (axes, shapes).
            output: Tensor to write, or description of one to add; a sequence for several. Without it, shape and data
                type are inferred.
            quant: Quantization of the output, a sequence for several. The output of quantized operands is quantized,
                too. A tensor given as `output` has its own parameters, and the output of an operation that only moves
                data keeps those of its operand.
            name: Name of the operation and its output; several outputs are `<name>:<position>`.
            **parameters: Parameters of the operation, named like the attributes of HDI's struct in snake_case, but
                `activation` for activationType and `global_` for global. Values are numbers, booleans, sequences or
                members of the API's enums. None or an empty sequence stands for the default.

        Returns:
            The output; a tuple of them for operations that may have several.

        Raises:
            InvalidParameter: The operation doesn't take what it is given.
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
    """Return the parts of a model, for its importers, compilations and tests."""
    return model._parts


def model_of(graph: Graph) -> Model:
    """Return the finished model that has this graph; raise InvalidFile for a graph that no model has."""
    model = Model()
    model._parts = ModelParts.from_graph(graph)
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
