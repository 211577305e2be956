"""Functions of models."""

from collections.abc import Sequence

from nnrt_client.c_interface.adapter import (
    returns_code,
    returns_nothing,
    returns_pointer,
    returns_value,
)
from nnrt_client.c_interface.buffers import AnyBuffer, bytes_of
from nnrt_client.c_interface.functions.devices import device_of
from nnrt_client.c_interface.handles import NN_QuantParam, NN_TensorDesc, OH_NNModel
from nnrt_client.c_interface.structs import OH_NN_UInt32Array, indices_of
from nnrt_client.model.model import Model
from nnrt_hdi.errors import OperationForbidden


@returns_pointer("OH_NNModel", "Model")
def OH_NNModel_Construct() -> OH_NNModel:
    """Create an empty model."""
    return OH_NNModel(Model())


@returns_code("Model.add_tensor")
def OH_NNModel_AddTensorToModel(model: OH_NNModel | None, tensor_desc: NN_TensorDesc | None) -> None:
    """Add a tensor. Its index is the number of tensors added before it."""
    OH_NNModel.require(model).add_tensor(NN_TensorDesc.require(tensor_desc))


@returns_code("Model.set_tensor_data")
def OH_NNModel_SetTensorData(model: OH_NNModel | None, index: int, data_buffer: AnyBuffer | None) -> None:
    """Set the elements of a constant to a copy of the buffer, which must have exactly the tensor's size."""
    OH_NNModel.require(model).set_tensor_data(index, bytes_of(data_buffer))


@returns_code("Model.set_tensor_quant_params")
def OH_NNModel_SetTensorQuantParams(model: OH_NNModel | None, index: int, quant_param: NN_QuantParam | None) -> None:
    """Set a copy of quantization parameters. If they are invalid, the call fails and the tensor has none afterwards."""
    OH_NNModel.require(model).set_tensor_quant_params(index, NN_QuantParam.require(quant_param))


@returns_code("Model.set_tensor_type")
def OH_NNModel_SetTensorType(model: OH_NNModel | None, index: int, tensor_type: int) -> None:
    """Set which parameter of an operation a tensor is. A later call overrides this."""
    OH_NNModel.require(model).set_tensor_type(index, tensor_type)  # type: ignore[arg-type]  # checks numbers


@returns_code("Model.add_operation, Model.apply")
def OH_NNModel_AddOperation(
    model: OH_NNModel | None,
    op: int,
    param_indices: OH_NN_UInt32Array | Sequence[int] | None,
    input_indices: OH_NN_UInt32Array | Sequence[int] | None,
    output_indices: OH_NN_UInt32Array | Sequence[int] | None,
) -> None:
    """Add an operation. Parameters that are left out have the operation's defaults; the sequence may be empty."""
    OH_NNModel.require(model).add_operation(
        op,  # type: ignore[arg-type]  # checks numbers
        indices_of(param_indices),
        indices_of(input_indices),
        indices_of(output_indices),
    )


@returns_code("Model.specify_inputs_and_outputs")
def OH_NNModel_SpecifyInputsAndOutputs(
    model: OH_NNModel | None,
    input_indices: OH_NN_UInt32Array | Sequence[int] | None,
    output_indices: OH_NN_UInt32Array | Sequence[int] | None,
) -> None:
    """Set the inputs and outputs. Executors number them by their positions in these lists."""
    OH_NNModel.require(model).specify_inputs_and_outputs(indices_of(input_indices), indices_of(output_indices))


@returns_code("Model.finish")
def OH_NNModel_Finish(model: OH_NNModel | None) -> None:
    """Finish the model, which then never changes."""
    OH_NNModel.require(model).finish()


@returns_nothing("")
def OH_NNModel_Destroy(model: OH_NNModel | None) -> None:
    """Destroy a model. Its compilations keep working."""
    OH_NNModel.take(model)


@returns_value("supported", None, "Model.supported_operations")
def OH_NNModel_GetAvailableOperations(model: OH_NNModel | None, device_id: int) -> Sequence[bool]:
    """Return for each operation, in the order they were added, whether the device supports it."""
    inner = OH_NNModel.require(model)
    if not inner.is_finished:
        raise OperationForbidden("the model is not finished; finish it first")
    return tuple(answer.supported for answer in inner.supported_operations(device_of(device_id)))
