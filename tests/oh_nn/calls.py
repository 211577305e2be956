"""One successful call of each of the 75 C functions, and what it returns."""

from array import array
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from nnrt_client.oh_nn import *
from oh_nn.world import World, X, legacy, value

Returns = Literal["code", "value", "pointer", "nothing"]


class Call(NamedTuple):
    """Function, the kind of its result, and a function that returns arguments with which it succeeds."""

    function: Callable[..., Any]
    returns: Returns
    arguments: Callable[[World], tuple[Any, ...]]


def _executor(world: World) -> Any:
    world.connect("reference")
    return world.executor()


def _executor_with_callback(world: World) -> Any:
    executor = _executor(world)
    OH_NNExecutor_SetOnRunDone(executor, lambda *given: None)
    return executor


def _on_device(world: World, *given: Any) -> tuple[Any, ...]:
    world.connect("reference")
    return given


def _configuring(world: World, *given: Any, backend: str = "faulty") -> tuple[Any, ...]:
    world.connect(backend)
    return world.compilation(), *given


def _fd(world: World) -> int:
    return int(value(OH_NNTensor_GetFd(world.tensor())))


def _with_memory(world: World, *given: Any, for_output: bool = False) -> tuple[Any, ...]:
    executor = _executor(world)
    return executor, 0, *given, world.memory(executor, for_output=for_output)


def _tensors(world: World) -> tuple[Any, ...]:
    return [world.tensor(values=X)], [world.tensor()]


CALLS = [
    Call(OH_NNDevice_GetAllDevicesID, "value", lambda world: _on_device(world)),
    Call(OH_NNDevice_GetName, "value", lambda world: _on_device(world, 0)),
    Call(OH_NNDevice_GetType, "value", lambda world: _on_device(world, 0)),
    Call(OH_NNTensorDesc_Create, "pointer", lambda world: ()),
    Call(OH_NNTensorDesc_Destroy, "code", lambda world: (OH_NNTensorDesc_Create(),)),
    Call(OH_NNTensorDesc_SetName, "code", lambda world: (world.desc(), "name")),
    Call(OH_NNTensorDesc_GetName, "value", lambda world: (world.desc(),)),
    Call(OH_NNTensorDesc_SetDataType, "code", lambda world: (world.desc(), OH_NN_INT8)),
    Call(OH_NNTensorDesc_GetDataType, "value", lambda world: (world.desc(),)),
    Call(OH_NNTensorDesc_SetShape, "code", lambda world: (world.desc(), [1, 2])),
    Call(OH_NNTensorDesc_GetShape, "value", lambda world: (world.desc(),)),
    Call(OH_NNTensorDesc_SetFormat, "code", lambda world: (world.desc(), OH_NN_FORMAT_NCHW)),
    Call(OH_NNTensorDesc_GetFormat, "value", lambda world: (world.desc(),)),
    Call(OH_NNTensorDesc_GetElementCount, "value", lambda world: (world.desc(),)),
    Call(OH_NNTensorDesc_GetByteSize, "value", lambda world: (world.desc(),)),
    Call(OH_NNTensor_Create, "pointer", lambda world: _on_device(world, 0, world.desc())),
    Call(OH_NNTensor_CreateWithSize, "pointer", lambda world: _on_device(world, 0, world.desc((-1, 4)), 16)),
    Call(OH_NNTensor_CreateWithFd, "pointer", lambda world: (*_on_device(world, 0, world.desc()), _fd(world), 16, 0)),
    Call(OH_NNTensor_Destroy, "code", lambda world: (*_on_device(world), world.tensor())),
    Call(OH_NNTensor_GetDataBuffer, "pointer", lambda world: (*_on_device(world), world.tensor())),
    Call(OH_NNTensor_GetFd, "value", lambda world: (*_on_device(world), world.tensor())),
    Call(OH_NNTensor_GetSize, "value", lambda world: (*_on_device(world), world.tensor())),
    Call(OH_NNTensor_GetOffset, "value", lambda world: (*_on_device(world), world.tensor())),
    Call(OH_NNTensor_GetTensorDesc, "pointer", lambda world: (*_on_device(world), world.tensor())),
    Call(OH_NNQuantParam_Create, "pointer", lambda world: ()),
    Call(OH_NNQuantParam_SetScales, "code", lambda world: (world.quant_param(), [0.5])),
    Call(OH_NNQuantParam_SetZeroPoints, "code", lambda world: (world.quant_param(), [-3])),
    Call(OH_NNQuantParam_SetNumBits, "code", lambda world: (world.quant_param(), [8])),
    Call(OH_NNQuantParam_Destroy, "code", lambda world: (world.quant_param(),)),
    Call(OH_NNModel_Construct, "pointer", lambda world: ()),
    Call(OH_NNModel_AddTensorToModel, "code", lambda world: (world.empty_model(), world.desc())),
    Call(OH_NNModel_SetTensorData, "code", lambda world: (world.tensors((1, 4)), 0, X)),
    Call(OH_NNModel_SetTensorQuantParams, "code", lambda world: (world.tensors((1, 4)), 0, world.quant_param())),
    Call(OH_NNModel_SetTensorType, "code", lambda world: (world.tensors((1, 4)), 0, OH_NN_ADD_ACTIVATIONTYPE)),
    Call(
        OH_NNModel_AddOperation,
        "code",
        lambda world: (
            world.tensors([4], [4], [4]),
            OH_NN_OPS_ADD,
            OH_NN_UInt32Array(),
            np.array([0, 1]),
            OH_NN_UInt32Array(array("I", [2])),
        ),
    ),
    Call(OH_NNModel_SpecifyInputsAndOutputs, "code", lambda world: (world.tensors([4], [4]), [0], [1])),
    Call(OH_NNModel_Finish, "code", lambda world: (world.model(),)),
    Call(OH_NNModel_Destroy, "nothing", lambda world: (world.model(),)),
    Call(OH_NNModel_GetAvailableOperations, "value", lambda world: _on_device(world, world.finished(), 0)),
    Call(OH_NNCompilation_Construct, "pointer", lambda world: (world.finished(),)),
    Call(OH_NNCompilation_ConstructWithOfflineModelFile, "pointer", lambda world: (str(world.directory / "model"),)),
    Call(OH_NNCompilation_ConstructWithOfflineModelBuffer, "pointer", lambda world: (b"model",)),
    Call(OH_NNCompilation_ConstructForCache, "pointer", lambda world: ()),
    Call(OH_NNCompilation_SetDevice, "code", lambda world: _configuring(world, 0)),
    Call(OH_NNCompilation_SetPerformanceMode, "code", lambda world: _configuring(world, OH_NN_PERFORMANCE_HIGH)),
    Call(OH_NNCompilation_SetPriority, "code", lambda world: _configuring(world, OH_NN_PRIORITY_HIGH)),
    Call(OH_NNCompilation_EnableFloat16, "code", lambda world: _configuring(world, True)),
    Call(OH_NNCompilation_SetCache, "code", lambda world: _configuring(world, str(world.directory), 1)),
    Call(OH_NNCompilation_ImportCacheFromBuffer, "code", lambda world: _configuring(world, b"cache")),
    Call(
        OH_NNCompilation_ExportCacheToBuffer,
        "value",
        lambda world: (*_on_device(world), world.built(), bytearray(1 << 16)),
    ),
    Call(OH_NNCompilation_AddExtensionConfig, "code", lambda world: _configuring(world, "name", b"value")),
    Call(OH_NNCompilation_Build, "code", lambda world: _configuring(world)),
    Call(OH_NNCompilation_Destroy, "nothing", lambda world: _configuring(world)),
    Call(OH_NNExecutor_Construct, "pointer", lambda world: (*_on_device(world), world.built())),
    Call(OH_NNExecutor_Destroy, "nothing", lambda world: (_executor(world),)),
    Call(OH_NNExecutor_GetInputCount, "value", lambda world: (_executor(world),)),
    Call(OH_NNExecutor_GetOutputCount, "value", lambda world: (_executor(world),)),
    Call(OH_NNExecutor_CreateInputTensorDesc, "pointer", lambda world: (_executor(world), 0)),
    Call(OH_NNExecutor_CreateOutputTensorDesc, "pointer", lambda world: (_executor(world), 0)),
    Call(OH_NNExecutor_GetInputDimRange, "value", lambda world: (_executor(world), 0)),
    Call(OH_NNExecutor_GetOutputShape, "value", lambda world: (_executor(world), 0)),
    Call(OH_NNExecutor_SetOnRunDone, "code", lambda world: (_executor(world), lambda *given: None)),
    Call(OH_NNExecutor_SetOnServiceDied, "code", lambda world: (_executor(world), lambda *given: None)),
    Call(OH_NNExecutor_RunSync, "code", lambda world: (_executor(world), *_tensors(world))),
    Call(
        OH_NNExecutor_RunAsync,
        "code",
        lambda world: (_executor_with_callback(world), *_tensors(world), 60_000, "user data"),
    ),
    Call(OH_NNModel_AddTensor, "code", lambda world: (world.empty_model(), legacy())),
    Call(OH_NNExecutor_SetInput, "code", lambda world: (_executor(world), 0, legacy(), X)),
    Call(OH_NNExecutor_SetOutput, "code", lambda world: (_executor(world), 0, bytearray(16))),
    Call(OH_NNExecutor_Run, "code", lambda world: (world.bound(_executor(world)),)),
    Call(OH_NNExecutor_AllocateInputMemory, "pointer", lambda world: (_executor(world), 0, 16)),
    Call(OH_NNExecutor_AllocateOutputMemory, "pointer", lambda world: (_executor(world), 0, 16)),
    Call(OH_NNExecutor_DestroyInputMemory, "nothing", lambda world: _with_memory(world)),
    Call(OH_NNExecutor_DestroyOutputMemory, "nothing", lambda world: _with_memory(world, for_output=True)),
    Call(OH_NNExecutor_SetInputWithMemory, "code", lambda world: _with_memory(world, legacy())),
    Call(OH_NNExecutor_SetOutputWithMemory, "code", lambda world: _with_memory(world, for_output=True)),
]
