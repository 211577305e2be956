"""NNRt's application interface as C programs know it: its 75 functions, by their names, returning codes.

A thin layer over the object API, for programs that are ported line by line and for checking behaviour literally. The
conventions, and what the object API has in place of each function, stand in docs/api.md:

- Arguments come in C's order, without the out-pointers. A C (pointer, length) or (array, count) pair is one buffer or
  sequence. None stands for every null pointer.
- A function with out-pointers returns (code, value, ...); one that returns a pointer, that or None.
- A scalar has the shape [1].
- Handles are opaque. Destroying one makes it a null handle, wherever it is used later.
- Devices are those of the process-wide runtime: see `nnrt_client.connect`. A device id of 0 is the first one.
- `last_error()` tells why, in words.

    model = OH_NNModel_Construct()
    desc = OH_NNTensorDesc_Create()
    if OH_NNTensorDesc_SetShape(desc, [1, 4]) != OH_NN_SUCCESS:
        print(last_error())
"""

from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from nnrt_client.build.compilation import Compilation
from nnrt_client.c_interface import callbacks, constants, handles, structs
from nnrt_client.c_interface.adapter import (
    FUNCTIONS,
    BufferTooSmall,
    returns_code,
    returns_nothing,
    returns_pointer,
    returns_two_values,
    returns_value,
)
from nnrt_client.c_interface.adapter import last_error as last_error
from nnrt_client.c_interface.buffers import AnyBuffer, bytes_of, writable_bytes_of
from nnrt_client.c_interface.callbacks import *
from nnrt_client.c_interface.callbacks import AsyncRun, calling_on_run_done, calling_on_service_died
from nnrt_client.c_interface.constants import *
from nnrt_client.c_interface.handles import *
from nnrt_client.c_interface.handles import SCALAR_SHAPE, tensors_of
from nnrt_client.c_interface.structs import *
from nnrt_client.c_interface.structs import indices_of, legacy_tensor
from nnrt_client.model.model import Model
from nnrt_client.run.executor import Executor
from nnrt_client.run.result import OutputTooSmall
from nnrt_client.session.device import Device
from nnrt_client.session.process_runtime import process_runtime
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor import Tensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import InvalidParameter, OperationFailed, OperationForbidden, UnavailableDevice

# ---- Device


def _device(device_id: int) -> Device:
    """The device of an id. To NNRt one that doesn't answer is FAILED, for whatever reason."""
    runtime = process_runtime()
    device = runtime.find(device_id)
    if device is None:
        raise OperationFailed(runtime._why_not(device_id).message)
    return device


@returns_value("ids", (), "Runtime.devices, Device.id")
def OH_NNDevice_GetAllDevicesID() -> Sequence[int]:
    """The devices that answer now and take work, in the order of their addresses."""
    return tuple(device.id for device in process_runtime().devices())


@returns_value("name", None, "Device.name")
def OH_NNDevice_GetName(device_id: int) -> str:
    """The unique name: device, vendor and version of the device interface."""
    return _device(device_id).name


@returns_value("type", None, "Device.type")
def OH_NNDevice_GetType(device_id: int) -> OH_NN_DeviceType:
    """The kind of processor. An unknown id is INVALID_PARAMETER here, not FAILED."""
    runtime = process_runtime()
    device = runtime.find(device_id)
    if device is None and device_id and runtime._knows(device_id):
        raise UnavailableDevice(f"device {device_id} is gone; look which there are")
    if device is None:
        raise InvalidParameter(f"no device {device_id} answers; look which there are")
    return device.type


# ---- TensorDesc


@returns_pointer("NN_TensorDesc", "TensorDesc")
def OH_NNTensorDesc_Create() -> NN_TensorDesc:
    """A desc with no name, data type, format or shape."""
    return NN_TensorDesc(TensorDesc())


@returns_code("")
def OH_NNTensorDesc_Destroy(tensor_desc: NN_TensorDesc | None) -> None:
    """Refuses the desc that belongs to a tensor."""
    if isinstance(tensor_desc, NN_TensorDesc) and tensor_desc.is_borrowed:
        raise InvalidParameter("the desc belongs to its tensor; destroy that")
    NN_TensorDesc.take(tensor_desc)


@returns_code("TensorDesc.name")
def OH_NNTensorDesc_SetName(tensor_desc: NN_TensorDesc | None, name: str | None) -> None:
    """The name may be empty."""
    NN_TensorDesc.of(tensor_desc).name = name  # type: ignore[assignment]  # refuses None


@returns_value("name", None, "TensorDesc.name")
def OH_NNTensorDesc_GetName(tensor_desc: NN_TensorDesc | None) -> str:
    """Empty if it was never set."""
    return NN_TensorDesc.of(tensor_desc).name


@returns_code("TensorDesc.data_type")
def OH_NNTensorDesc_SetDataType(tensor_desc: NN_TensorDesc | None, data_type: int) -> None:
    """Takes OH_NN_UNKNOWN, too."""
    NN_TensorDesc.of(tensor_desc).data_type = data_type  # type: ignore[assignment]  # checks numbers


@returns_value("data type", None, "TensorDesc.data_type")
def OH_NNTensorDesc_GetDataType(tensor_desc: NN_TensorDesc | None) -> OH_NN_DataType:
    """OH_NN_UNKNOWN if it was never set."""
    return NN_TensorDesc.of(tensor_desc).data_type


@returns_code("TensorDesc.shape")
def OH_NNTensorDesc_SetShape(tensor_desc: NN_TensorDesc | None, shape: Sequence[int] | None) -> None:
    """1 to 10 dimensions, which are not looked at: -1 is one known only when the model runs."""
    NN_TensorDesc.of(tensor_desc).shape = shape  # type: ignore[assignment]  # refuses None


@returns_value("shape", None, "TensorDesc.shape")
def OH_NNTensorDesc_GetShape(tensor_desc: NN_TensorDesc | None) -> Sequence[int]:
    """Empty if it was never set."""
    return NN_TensorDesc.of(tensor_desc).shape or ()


@returns_code("TensorDesc.format")
def OH_NNTensorDesc_SetFormat(tensor_desc: NN_TensorDesc | None, format: int) -> None:
    """The order of the dimensions."""
    NN_TensorDesc.of(tensor_desc).format = format  # type: ignore[assignment]  # checks numbers


@returns_value("format", None, "TensorDesc.format")
def OH_NNTensorDesc_GetFormat(tensor_desc: NN_TensorDesc | None) -> OH_NN_Format:
    """OH_NN_FORMAT_NONE if it was never set."""
    return NN_TensorDesc.of(tensor_desc).format


@returns_value("count", 0, "TensorDesc.element_count")
def OH_NNTensorDesc_GetElementCount(tensor_desc: NN_TensorDesc | None) -> int:
    """DYNAMIC_SHAPE and 0 while a dimension is unknown."""
    return NN_TensorDesc.of(tensor_desc).element_count()


@returns_value("size", 0, "TensorDesc.byte_size")
def OH_NNTensorDesc_GetByteSize(tensor_desc: NN_TensorDesc | None) -> int:
    """DYNAMIC_SHAPE and 0 while a dimension is unknown."""
    return NN_TensorDesc.of(tensor_desc).byte_size()


# ---- Tensor


@returns_pointer("NN_Tensor", "Tensor")
def OH_NNTensor_Create(device_id: int, tensor_desc: NN_TensorDesc | None) -> NN_Tensor:
    """A tensor of the desc's size, which must be fixed."""
    desc = NN_TensorDesc.of(tensor_desc)
    return NN_Tensor(Tensor(_device(device_id), desc))


@returns_pointer("NN_Tensor", "Tensor.with_size")
def OH_NNTensor_CreateWithSize(device_id: int, tensor_desc: NN_TensorDesc | None, size: int) -> NN_Tensor:
    """A tensor with room for `size` bytes: the way to receive an output whose shape only the run decides."""
    desc = NN_TensorDesc.of(tensor_desc)
    return NN_Tensor(Tensor.with_size(_device(device_id), desc, size))


@returns_pointer("NN_Tensor", "Tensor.from_fd")
def OH_NNTensor_CreateWithFd(
    device_id: int, tensor_desc: NN_TensorDesc | None, fd: int, size: int, offset: int
) -> NN_Tensor:
    """A tensor over the bytes [offset, size) of shared memory; `fd` stays the caller's."""
    desc = NN_TensorDesc.of(tensor_desc)
    return NN_Tensor(Tensor.from_fd(_device(device_id), desc, fd, size, offset))


@returns_code("Tensor.close")
def OH_NNTensor_Destroy(tensor: NN_Tensor | None) -> None:
    """Its own desc goes with it; views of its memory stay good."""
    NN_Tensor.take(tensor).close()


@returns_pointer("buffer", "Tensor.data_buffer, Tensor.numpy")
def OH_NNTensor_GetDataBuffer(tensor: NN_Tensor | None) -> memoryview:
    """The bytes [offset, size) themselves, to read and write."""
    return NN_Tensor.of(tensor).data_buffer


@returns_value("fd", None, "Tensor.fd")
def OH_NNTensor_GetFd(tensor: NN_Tensor | None) -> int:
    """The descriptor stays the tensor's."""
    return NN_Tensor.of(tensor).fd


@returns_value("size", 0, "Tensor.size_bytes")
def OH_NNTensor_GetSize(tensor: NN_Tensor | None) -> int:
    """Of the whole memory, what lies before the offset included."""
    return NN_Tensor.of(tensor).size_bytes


@returns_value("offset", 0, "Tensor.offset")
def OH_NNTensor_GetOffset(tensor: NN_Tensor | None) -> int:
    """0, unless it was created with a descriptor."""
    return NN_Tensor.of(tensor).offset


@returns_pointer("NN_TensorDesc", "Tensor.desc")
def OH_NNTensor_GetTensorDesc(tensor: NN_Tensor | None) -> NN_TensorDesc:
    """The tensor's own: what is set there is what the next run takes, and a run sets its outputs' shapes there."""
    return NN_Tensor.lent_desc(tensor)


# ---- QuantParam


@returns_pointer("NN_QuantParam", "QuantParam")
def OH_NNQuantParam_Create() -> NN_QuantParam:
    """Three empty arrays."""
    return NN_QuantParam(QuantParam())


@returns_code("QuantParam.scales")
def OH_NNQuantParam_SetScales(quant_params: NN_QuantParam | None, scales: Sequence[float] | None) -> None:
    """One for the tensor, or one per channel."""
    NN_QuantParam.of(quant_params).scales = scales  # type: ignore[assignment]  # refuses None


@returns_code("QuantParam.zero_points")
def OH_NNQuantParam_SetZeroPoints(quant_params: NN_QuantParam | None, zero_points: Sequence[int] | None) -> None:
    """As many as scales."""
    NN_QuantParam.of(quant_params).zero_points = zero_points  # type: ignore[assignment]  # refuses None


@returns_code("QuantParam.num_bits")
def OH_NNQuantParam_SetNumBits(quant_params: NN_QuantParam | None, num_bits: Sequence[int] | None) -> None:
    """As many as scales, each 8; that is checked when they are set on a tensor."""
    NN_QuantParam.of(quant_params).num_bits = num_bits  # type: ignore[assignment]  # refuses None


@returns_code("")
def OH_NNQuantParam_Destroy(quant_params: NN_QuantParam | None) -> None:
    """Tensors they were set on keep their copy."""
    NN_QuantParam.take(quant_params)


# ---- Model


@returns_pointer("OH_NNModel", "Model")
def OH_NNModel_Construct() -> OH_NNModel:
    """An empty model."""
    return OH_NNModel(Model())


@returns_code("Model.add_tensor")
def OH_NNModel_AddTensorToModel(model: OH_NNModel | None, tensor_desc: NN_TensorDesc | None) -> None:
    """Its index is the number of tensors added before it."""
    OH_NNModel.of(model).add_tensor(NN_TensorDesc.of(tensor_desc))


@returns_code("Model.set_tensor_data")
def OH_NNModel_SetTensorData(model: OH_NNModel | None, index: int, data_buffer: AnyBuffer | None) -> None:
    """The bytes are copied; they must be exactly as many as the tensor has."""
    OH_NNModel.of(model).set_tensor_data(index, bytes_of(data_buffer))


@returns_code("Model.set_tensor_quant_params")
def OH_NNModel_SetTensorQuantParams(model: OH_NNModel | None, index: int, quant_param: NN_QuantParam | None) -> None:
    """They are copied. A call that fails for what they are leaves the tensor without any."""
    OH_NNModel.of(model).set_tensor_quant_params(index, NN_QuantParam.of(quant_param))


@returns_code("Model.set_tensor_type")
def OH_NNModel_SetTensorType(model: OH_NNModel | None, index: int, tensor_type: int) -> None:
    """Says which parameter of an operation a tensor is; the last call counts."""
    OH_NNModel.of(model).set_tensor_type(index, tensor_type)  # type: ignore[arg-type]  # checks numbers


@returns_code("Model.add_operation, Model.apply")
def OH_NNModel_AddOperation(
    model: OH_NNModel | None,
    op: int,
    param_indices: OH_NN_UInt32Array | Sequence[int] | None,
    input_indices: OH_NN_UInt32Array | Sequence[int] | None,
    output_indices: OH_NN_UInt32Array | Sequence[int] | None,
) -> None:
    """No parameters are an empty sequence; those left out have the operation's defaults."""
    OH_NNModel.of(model).add_operation(
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
    """The positions in these lists are the indices that an executor uses."""
    OH_NNModel.of(model).specify_inputs_and_outputs(indices_of(input_indices), indices_of(output_indices))


@returns_code("Model.finish")
def OH_NNModel_Finish(model: OH_NNModel | None) -> None:
    """From now on the model never changes."""
    OH_NNModel.of(model).finish()


@returns_nothing("")
def OH_NNModel_Destroy(model: OH_NNModel | None) -> None:
    """Compilations made from it don't mind."""
    OH_NNModel.take(model)


@returns_value("supported", None, "Model.supported_operations")
def OH_NNModel_GetAvailableOperations(model: OH_NNModel | None, device_id: int) -> Sequence[bool]:
    """One truth value per operation, in the order they were added."""
    inner = OH_NNModel.of(model)
    if not inner.is_finished:
        raise OperationForbidden("the model is not finished; finish it first")
    return tuple(answer.supported for answer in inner.supported_operations(_device(device_id)))


# ---- Compilation


def _late(device_id: int) -> Callable[[], Device]:
    """The device of an id when it is needed: compilations take any id."""
    return partial(_device, device_id)


@returns_pointer("OH_NNCompilation", "Compilation")
def OH_NNCompilation_Construct(model: OH_NNModel | None) -> OH_NNCompilation:
    """Of a model that is finished when it is built. The handle of the model may be destroyed at once."""
    return OH_NNCompilation(Compilation(OH_NNModel.of(model), _late(0)))


@returns_pointer("OH_NNCompilation", "Compilation.from_offline_file")
def OH_NNCompilation_ConstructWithOfflineModelFile(model_path: str | PathLike[str] | None) -> OH_NNCompilation:
    """Of a file that was compiled for the device; it is read when it is built."""
    if model_path is None:
        raise InvalidParameter("the path is None; give that of an offline model")
    return OH_NNCompilation(Compilation.from_offline_file(model_path, _late(0)))


@returns_pointer("OH_NNCompilation", "Compilation.from_offline_buffer")
def OH_NNCompilation_ConstructWithOfflineModelBuffer(model_buffer: AnyBuffer | None) -> OH_NNCompilation:
    """Of such a file in memory, which is not copied: leave it alone until it is built."""
    return OH_NNCompilation(Compilation.from_offline_buffer(bytes_of(model_buffer), _late(0)))


@returns_pointer("OH_NNCompilation", "Compilation.for_cache")
def OH_NNCompilation_ConstructForCache() -> OH_NNCompilation:
    """Of a cache that is set or imported before it is built."""
    return OH_NNCompilation(Compilation.for_cache(_late(0)))


@returns_code("Compilation.set_device")
def OH_NNCompilation_SetDevice(compilation: OH_NNCompilation | None, device_id: int) -> None:
    """Any id is taken; `Build` looks for the device."""
    OH_NNCompilation.of(compilation).set_device(_late(device_id))


@returns_code("Compilation.set_performance_mode")
def OH_NNCompilation_SetPerformanceMode(compilation: OH_NNCompilation | None, performance_mode: int) -> None:
    """UNAVAILABLE_DEVICE if the device has no performance modes."""
    OH_NNCompilation.of(compilation).set_performance_mode(performance_mode)  # type: ignore[arg-type]  # Build checks


@returns_code("Compilation.set_priority")
def OH_NNCompilation_SetPriority(compilation: OH_NNCompilation | None, priority: int) -> None:
    """UNAVAILABLE_DEVICE if the device has no priorities."""
    OH_NNCompilation.of(compilation).set_priority(priority)  # type: ignore[arg-type]  # Build checks


@returns_code("Compilation.enable_float16")
def OH_NNCompilation_EnableFloat16(compilation: OH_NNCompilation | None, enable_float16: bool) -> None:
    """UNAVAILABLE_DEVICE if the device can't compute in half precision."""
    OH_NNCompilation.of(compilation).enable_float16(enable_float16)


@returns_code("Compilation.set_cache")
def OH_NNCompilation_SetCache(
    compilation: OH_NNCompilation | None, cache_path: str | PathLike[str] | None, version: int
) -> None:
    """A directory, in which each device has one of its own. What is there is read and checked whole."""
    inner = OH_NNCompilation.of(compilation)
    if cache_path is None:
        raise InvalidParameter("the path is None; give that of a directory")
    inner.set_cache(cache_path, version, reads_all=True)


@returns_code("Compilation.import_cache")
def OH_NNCompilation_ImportCacheFromBuffer(compilation: OH_NNCompilation | None, buffer: AnyBuffer | None) -> None:
    """The buffer is not copied: leave it alone until it is built."""
    OH_NNCompilation.of(compilation).import_cache(bytes_of(buffer))


@returns_value("model size", 0, "Compilation.export_cache")
def OH_NNCompilation_ExportCacheToBuffer(compilation: OH_NNCompilation | None, buffer: AnyBuffer | None) -> int:
    """Writes the start of the buffer. One that is too small is INVALID_PARAMETER, with the size needed."""
    inner, target = OH_NNCompilation.of(compilation), writable_bytes_of(buffer)
    cache = inner.export_cache()
    if len(cache) > len(target):
        raise BufferTooSmall(len(target), len(cache))
    target[: len(cache)] = cache
    return len(cache)


@returns_code("Compilation.add_extension_config")
def OH_NNCompilation_AddExtensionConfig(
    compilation: OH_NNCompilation | None, config_name: str | None, config_value: AnyBuffer | None
) -> None:
    """For the backend, which refuses in `Build` what it doesn't know. A name given twice joins the values with `|`.
    `ModelName` is not for the backend: models of different names can share a directory of caches."""
    inner, value = OH_NNCompilation.of(compilation), bytes_of(config_value)
    if config_name is None:
        raise InvalidParameter("the name is None; give a text")
    inner.add_extension_config(config_name, value.tobytes())


@returns_code("Compilation.build")
def OH_NNCompilation_Build(compilation: OH_NNCompilation | None) -> None:
    """May take minutes. Once a device has decided, nothing can be changed any more."""
    OH_NNCompilation.of(compilation).build()


@returns_nothing("Compilation.close")
def OH_NNCompilation_Destroy(compilation: OH_NNCompilation | None) -> None:
    """Executors made from it keep working."""
    OH_NNCompilation.take(compilation).close()


# ---- Executor


@returns_pointer("OH_NNExecutor", "Executor")
def OH_NNExecutor_Construct(compilation: OH_NNCompilation | None) -> OH_NNExecutor:
    """Of a compilation that has been built."""
    return OH_NNExecutor(Executor(OH_NNCompilation.of(compilation)))


@returns_nothing("Executor.close")
def OH_NNExecutor_Destroy(executor: OH_NNExecutor | None) -> None:
    """Ends its runs with FAILED and waits for their callbacks; frees memory that was allocated through it."""
    OH_NNExecutor.destroy(executor)


@returns_value("count", 0, "Executor.input_count")
def OH_NNExecutor_GetInputCount(executor: OH_NNExecutor | None) -> int:
    """The number of inputs that a run takes."""
    return OH_NNExecutor.of(executor).input_count


@returns_value("count", 0, "Executor.output_count")
def OH_NNExecutor_GetOutputCount(executor: OH_NNExecutor | None) -> int:
    """The number of outputs that a run gives."""
    return OH_NNExecutor.of(executor).output_count


@returns_pointer("NN_TensorDesc", "Executor.input_desc")
def OH_NNExecutor_CreateInputTensorDesc(executor: OH_NNExecutor | None, index: int) -> NN_TensorDesc:
    """As the model declares it, of a scalar [1]; the caller destroys it."""
    return NN_TensorDesc.in_run(OH_NNExecutor.of(executor).input_desc(index))


@returns_pointer("NN_TensorDesc", "Executor.output_desc")
def OH_NNExecutor_CreateOutputTensorDesc(executor: OH_NNExecutor | None, index: int) -> NN_TensorDesc:
    """As the model declares it, of a scalar [1]; the caller destroys it."""
    return NN_TensorDesc.in_run(OH_NNExecutor.of(executor).output_desc(index))


@returns_two_values("min dims", "max dims", "Executor.input_dim_range")
def OH_NNExecutor_GetInputDimRange(executor: OH_NNExecutor | None, index: int) -> tuple[Sequence[int], Sequence[int]]:
    """Smallest and largest dimensions the device takes; OPERATION_FORBIDDEN if it doesn't say."""
    least, most = OH_NNExecutor.of(executor).input_dim_range(index)
    return least or SCALAR_SHAPE, most or SCALAR_SHAPE


@returns_value("shape", None, "RunResult.shapes")
def OH_NNExecutor_GetOutputShape(executor: OH_NNExecutor | None, output_index: int) -> Sequence[int]:
    """That of the last run; before one the declared. After an output was too small, the one it needs."""
    OH_NNExecutor.of(executor)
    assert isinstance(executor, OH_NNExecutor)
    return executor.output_shape(output_index)


@returns_code("Executor.set_on_run_done")
def OH_NNExecutor_SetOnRunDone(executor: OH_NNExecutor | None, on_run_done: NN_OnRunDone | None) -> None:
    """Later runs call on_run_done(user_data, code, outputs), with the outputs that `RunAsync` was given."""
    OH_NNExecutor.of(executor).set_on_run_done(calling_on_run_done(on_run_done))


@returns_code("Executor.set_on_service_died")
def OH_NNExecutor_SetOnServiceDied(executor: OH_NNExecutor | None, on_service_died: NN_OnServiceDied | None) -> None:
    """Later runs call on_service_died(user_data) when their daemon dies."""
    OH_NNExecutor.of(executor).set_on_service_died(calling_on_service_died(on_service_died))


@returns_code("Executor.run_sync")
def OH_NNExecutor_RunSync(
    executor: OH_NNExecutor | None,
    input_tensors: Sequence[NN_Tensor | None] | None,
    output_tensors: Sequence[NN_Tensor | None] | None,
) -> None:
    """The results are in the memory of the outputs, their shapes in their descs."""
    inner = OH_NNExecutor.of(executor)
    assert isinstance(executor, OH_NNExecutor)
    try:
        result = inner.run_sync(tensors_of(input_tensors, "inputs"), tensors_of(output_tensors, "outputs"))
    except OutputTooSmall as error:
        executor.take_shapes(error)
        raise
    executor.take_shapes(result)


@returns_code("Executor.run_async, Executor.submit")
def OH_NNExecutor_RunAsync(
    executor: OH_NNExecutor | None,
    input_tensors: Sequence[NN_Tensor | None] | None,
    output_tensors: Sequence[NN_Tensor | None] | None,
    timeout: int,
    user_data: Any,
) -> None:
    """After SUCCESS exactly one callback follows. `timeout` is in milliseconds."""
    inner = OH_NNExecutor.of(executor)
    inputs, outputs = tensors_of(input_tensors, "inputs"), tensors_of(output_tensors, "outputs")
    assert isinstance(executor, OH_NNExecutor)
    run = None if user_data is None else AsyncRun(user_data, output_tensors, executor)
    inner.run_async(inputs, outputs, timeout_ms=timeout, user_data=run)


# ---- API 9, deprecated since API 11


@returns_code("Model.add_legacy_tensor", is_legacy=True)
def OH_NNModel_AddTensor(model: OH_NNModel | None, tensor: OH_NN_Tensor | None) -> None:
    """Use OH_NNModel_AddTensorToModel, with which it shares the numbering."""
    OH_NNModel.of(model).add_legacy_tensor(legacy_tensor(tensor))


@returns_code("Bindings.set_input", is_legacy=True)
def OH_NNExecutor_SetInput(
    executor: OH_NNExecutor | None, input_index: int, tensor: OH_NN_Tensor | None, data_buffer: AnyBuffer | None
) -> None:
    """Copies the data. Use OH_NNExecutor_RunSync."""
    bindings = OH_NNExecutor.bindings(executor)
    bindings.set_input(input_index, legacy_tensor(tensor), data_buffer)  # type: ignore[arg-type]  # refuses None


@returns_code("Bindings.set_output", is_legacy=True)
def OH_NNExecutor_SetOutput(executor: OH_NNExecutor | None, output_index: int, data_buffer: AnyBuffer | None) -> None:
    """`Run` writes the buffer. Use OH_NNExecutor_RunSync."""
    OH_NNExecutor.bindings(executor).set_output(output_index, data_buffer)  # type: ignore[arg-type]  # refuses None


@returns_code("Bindings.run", is_legacy=True)
def OH_NNExecutor_Run(executor: OH_NNExecutor | None) -> None:
    """Runs what is bound, which stays bound. Use OH_NNExecutor_RunSync."""
    bindings = OH_NNExecutor.bindings(executor)
    assert isinstance(executor, OH_NNExecutor)
    try:
        result = bindings.run()
    except OutputTooSmall as error:
        executor.take_shapes(error)
        raise
    executor.take_shapes(result)


@returns_pointer("OH_NN_Memory", "Bindings.allocate_input_memory", is_legacy=True)
def OH_NNExecutor_AllocateInputMemory(executor: OH_NNExecutor | None, input_index: int, length: int) -> OH_NN_Memory:
    """Use OH_NNTensor_CreateWithSize."""
    return OH_NN_Memory(OH_NNExecutor.bindings(executor).allocate_input_memory(input_index, length))


@returns_pointer("OH_NN_Memory", "Bindings.allocate_output_memory", is_legacy=True)
def OH_NNExecutor_AllocateOutputMemory(executor: OH_NNExecutor | None, output_index: int, length: int) -> OH_NN_Memory:
    """Use OH_NNTensor_CreateWithSize."""
    return OH_NN_Memory(OH_NNExecutor.bindings(executor).allocate_output_memory(output_index, length))


@returns_nothing("Bindings.destroy_input_memory", is_legacy=True)
def OH_NNExecutor_DestroyInputMemory(
    executor: OH_NNExecutor | None, input_index: int, memory: OH_NN_Memory | None
) -> None:
    """Only by the executor and the index it was allocated for. Use OH_NNTensor_Destroy."""
    OH_NNExecutor.bindings(executor).destroy_input_memory(input_index, OH_NN_Memory.of(memory))
    OH_NN_Memory.take(memory)


@returns_nothing("Bindings.destroy_output_memory", is_legacy=True)
def OH_NNExecutor_DestroyOutputMemory(
    executor: OH_NNExecutor | None, output_index: int, memory: OH_NN_Memory | None
) -> None:
    """Only by the executor and the index it was allocated for. Use OH_NNTensor_Destroy."""
    OH_NNExecutor.bindings(executor).destroy_output_memory(output_index, OH_NN_Memory.of(memory))
    OH_NN_Memory.take(memory)


@returns_code("Bindings.set_input_memory", is_legacy=True)
def OH_NNExecutor_SetInputWithMemory(
    executor: OH_NNExecutor | None, input_index: int, tensor: OH_NN_Tensor | None, memory: OH_NN_Memory | None
) -> None:
    """`Run` reads the memory. Use OH_NNExecutor_RunSync."""
    bindings = OH_NNExecutor.bindings(executor)
    bindings.set_input_memory(input_index, legacy_tensor(tensor), OH_NN_Memory.of(memory))


@returns_code("Bindings.set_output_memory", is_legacy=True)
def OH_NNExecutor_SetOutputWithMemory(
    executor: OH_NNExecutor | None, output_index: int, memory: OH_NN_Memory | None
) -> None:
    """`Run` writes the memory. Use OH_NNExecutor_RunSync."""
    OH_NNExecutor.bindings(executor).set_output_memory(output_index, OH_NN_Memory.of(memory))


if not TYPE_CHECKING:  # Type checkers find out by themselves.
    __all__ = [
        "last_error",
        *callbacks.__all__,
        *handles.__all__,
        *structs.__all__,
        *(name for name in vars(constants) if name.startswith("OH_NN_")),
        *(function.name for function in FUNCTIONS),
    ]
