"""Functions of API 9, deprecated since API 11."""

from nnrt_client.c_interface.adapter import (
    returns_code,
    returns_nothing,
    returns_pointer,
)
from nnrt_client.c_interface.buffers import AnyBuffer
from nnrt_client.c_interface.handles import OH_NN_Memory, OH_NNExecutor, OH_NNModel
from nnrt_client.c_interface.structs import OH_NN_Tensor, legacy_tensor
from nnrt_client.run.result import OutputTooSmall


@returns_code("Model.add_legacy_tensor", is_legacy=True)
def OH_NNModel_AddTensor(model: OH_NNModel | None, tensor: OH_NN_Tensor | None) -> None:
    """Add a tensor; it shares its numbering with OH_NNModel_AddTensorToModel. Deprecated: use that function."""
    OH_NNModel.require(model).add_legacy_tensor(legacy_tensor(tensor))


@returns_code("Bindings.set_input", is_legacy=True)
def OH_NNExecutor_SetInput(
    executor: OH_NNExecutor | None, input_index: int, tensor: OH_NN_Tensor | None, data_buffer: AnyBuffer | None
) -> None:
    """Copy the data of an input. Deprecated: use OH_NNExecutor_RunSync."""
    bindings = OH_NNExecutor.bindings(executor)
    bindings.set_input(input_index, legacy_tensor(tensor), data_buffer)  # type: ignore[arg-type]  # refuses None


@returns_code("Bindings.set_output", is_legacy=True)
def OH_NNExecutor_SetOutput(executor: OH_NNExecutor | None, output_index: int, data_buffer: AnyBuffer | None) -> None:
    """Set the buffer that `Run` writes an output to. Deprecated: use OH_NNExecutor_RunSync."""
    OH_NNExecutor.bindings(executor).set_output(output_index, data_buffer)  # type: ignore[arg-type]  # refuses None


@returns_code("Bindings.run", is_legacy=True)
def OH_NNExecutor_Run(executor: OH_NNExecutor | None) -> None:
    """Run with the inputs and outputs that are set, which stay set. Deprecated: use OH_NNExecutor_RunSync."""
    bindings = OH_NNExecutor.bindings(executor)
    assert isinstance(executor, OH_NNExecutor)
    try:
        result = bindings.run()
    except OutputTooSmall as error:
        executor.store_shapes(error)
        raise
    executor.store_shapes(result)


@returns_pointer("OH_NN_Memory", "Bindings.allocate_input_memory", is_legacy=True)
def OH_NNExecutor_AllocateInputMemory(executor: OH_NNExecutor | None, input_index: int, length: int) -> OH_NN_Memory:
    """Allocate memory for an input. Deprecated: use OH_NNTensor_CreateWithSize."""
    return OH_NN_Memory(OH_NNExecutor.bindings(executor).allocate_input_memory(input_index, length))


@returns_pointer("OH_NN_Memory", "Bindings.allocate_output_memory", is_legacy=True)
def OH_NNExecutor_AllocateOutputMemory(executor: OH_NNExecutor | None, output_index: int, length: int) -> OH_NN_Memory:
    """Allocate memory for an output. Deprecated: use OH_NNTensor_CreateWithSize."""
    return OH_NN_Memory(OH_NNExecutor.bindings(executor).allocate_output_memory(output_index, length))


@returns_nothing("Bindings.destroy_input_memory", is_legacy=True)
def OH_NNExecutor_DestroyInputMemory(
    executor: OH_NNExecutor | None, input_index: int, memory: OH_NN_Memory | None
) -> None:
    """Free memory, given the executor and the index that it was allocated for. Deprecated: use OH_NNTensor_Destroy."""
    OH_NNExecutor.bindings(executor).destroy_input_memory(input_index, OH_NN_Memory.require(memory))
    OH_NN_Memory.take(memory)


@returns_nothing("Bindings.destroy_output_memory", is_legacy=True)
def OH_NNExecutor_DestroyOutputMemory(
    executor: OH_NNExecutor | None, output_index: int, memory: OH_NN_Memory | None
) -> None:
    """Free memory, given the executor and the index that it was allocated for. Deprecated: use OH_NNTensor_Destroy."""
    OH_NNExecutor.bindings(executor).destroy_output_memory(output_index, OH_NN_Memory.require(memory))
    OH_NN_Memory.take(memory)


@returns_code("Bindings.set_input_memory", is_legacy=True)
def OH_NNExecutor_SetInputWithMemory(
    executor: OH_NNExecutor | None, input_index: int, tensor: OH_NN_Tensor | None, memory: OH_NN_Memory | None
) -> None:
    """Set the memory that `Run` reads an input from. Deprecated: use OH_NNExecutor_RunSync."""
    bindings = OH_NNExecutor.bindings(executor)
    bindings.set_input_memory(input_index, legacy_tensor(tensor), OH_NN_Memory.require(memory))


@returns_code("Bindings.set_output_memory", is_legacy=True)
def OH_NNExecutor_SetOutputWithMemory(
    executor: OH_NNExecutor | None, output_index: int, memory: OH_NN_Memory | None
) -> None:
    """Set the memory that `Run` writes an output to. Deprecated: use OH_NNExecutor_RunSync."""
    OH_NNExecutor.bindings(executor).set_output_memory(output_index, OH_NN_Memory.require(memory))
