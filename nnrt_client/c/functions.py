"""The 75 functions with C's signatures, in the order of the headers."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nnrt_client import oh_nn
from nnrt_client.c.addresses import addresses
from nnrt_client.c.parameters import (
    Bytes,
    CType,
    Elements,
    FileName,
    Function,
    Handles,
    Indices,
    LegacyTensor,
    Number,
    Object,
    OutElements,
    OutNumber,
    OutRange,
    OutText,
    Parameter,
    TakenObject,
    Text,
)


@dataclass(frozen=True, slots=True)
class Signature:
    """A function of C: its name, what it returns, and its parameters."""

    name: str
    # Such as "OH_NN_ReturnCode", "void", or "NN_Tensor *".
    returns: str
    parameters: Sequence[Parameter]

    @property
    def python(self) -> Callable[..., Any]:
        """The function of `oh_nn`."""
        function: Callable[..., Any] = getattr(oh_nn, self.name)
        return function

    @property
    def types(self) -> list[CType]:
        return [type_ for parameter in self.parameters for type_ in parameter.types]

    @property
    def declared(self) -> list[str]:
        """The declarations of its parameters."""
        return [text for parameter in self.parameters for text in parameter.declared]

    @property
    def prototype(self) -> str:
        """Its declaration in C."""
        gap = "" if self.returns.endswith("*") else " "
        return f"{self.returns}{gap}{self.name}({', '.join(self.declared) or 'void'})"


_RunDone = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int32)
_ServiceDied = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _calling_run_done(function: Any) -> Callable[..., object]:
    def call(user_data: int, code: int, outputs: Sequence[Any]) -> None:
        handles = (ctypes.c_void_p * len(outputs))(*(None if one is None else addresses.of(one) for one in outputs))
        function(user_data, int(code), ctypes.addressof(handles), len(outputs))

    return call


def _calling_service_died(function: Any) -> Callable[..., object]:
    def call(user_data: int) -> None:
        function(user_data)

    return call


_CODE = "OH_NN_ReturnCode"
_uint32 = partial(Number, type_=ctypes.c_uint32, c_type="uint32_t")
_int32 = partial(Number, type_=ctypes.c_int32, c_type="int32_t")
_size = partial(Number, type_=ctypes.c_size_t, c_type="size_t")
_out_size = partial(OutNumber, type_=ctypes.c_size_t, c_type="size_t")


def _enum(name: str, c_type: str) -> Number:
    return Number(name, ctypes.c_int, c_type)


def _out_enum(name: str, c_type: str) -> OutNumber:
    return OutNumber(name, ctypes.c_int, c_type)


def _desc(name: str = "tensorDesc", const: str = "") -> Object:
    return Object(name, f"{const}NN_TensorDesc")


def _model(const: str = "") -> Object:
    return Object("model", f"{const}OH_NNModel")


_compilation = Object("compilation", "OH_NNCompilation")
_executor = Object("executor", "OH_NNExecutor")
_const_executor = Object("executor", "const OH_NNExecutor")
_tensor = Object("tensor", "const NN_Tensor")
_runs = (Handles("inputTensor", "inputCount"), Handles("outputTensor", "outputCount"))


def _code(name: str, *parameters: Parameter) -> Signature:
    return Signature(name, _CODE, parameters)


def _made(name: str, c_type: str, *parameters: Parameter) -> Signature:
    return Signature(name, f"{c_type} *", parameters)


def _void(name: str, *parameters: Parameter) -> Signature:
    return Signature(name, "void", parameters)


SIGNATURES = (
    _code(
        "OH_NNDevice_GetAllDevicesID",
        OutElements("allDevicesID", ctypes.c_size_t, "const size_t", "deviceCount", ctypes.c_uint32, "uint32_t"),
    ),
    _code("OH_NNDevice_GetName", _size("deviceID"), OutText("name")),
    _code("OH_NNDevice_GetType", _size("deviceID"), _out_enum("deviceType", "OH_NN_DeviceType")),
    _made("OH_NNTensorDesc_Create", "NN_TensorDesc"),
    _code("OH_NNTensorDesc_Destroy", TakenObject("tensorDesc", "NN_TensorDesc")),
    _code("OH_NNTensorDesc_SetName", _desc(), Text("name")),
    _code("OH_NNTensorDesc_GetName", _desc(const="const "), OutText("name")),
    _code("OH_NNTensorDesc_SetDataType", _desc(), _enum("dataType", "OH_NN_DataType")),
    _code("OH_NNTensorDesc_GetDataType", _desc(const="const "), _out_enum("dataType", "OH_NN_DataType")),
    _code("OH_NNTensorDesc_SetShape", _desc(), Elements("shape", ctypes.c_int32, "int32_t", "shapeLength")),
    _code(
        "OH_NNTensorDesc_GetShape",
        _desc(const="const "),
        OutElements("shape", ctypes.c_int32, "int32_t", "shapeLength", ctypes.c_size_t, "size_t"),
    ),
    _code("OH_NNTensorDesc_SetFormat", _desc(), _enum("format", "OH_NN_Format")),
    _code("OH_NNTensorDesc_GetFormat", _desc(const="const "), _out_enum("format", "OH_NN_Format")),
    _code("OH_NNTensorDesc_GetElementCount", _desc(const="const "), _out_size("elementCount")),
    _code("OH_NNTensorDesc_GetByteSize", _desc(const="const "), _out_size("byteSize")),
    _made("OH_NNTensor_Create", "NN_Tensor", _size("deviceID"), _desc()),
    _made("OH_NNTensor_CreateWithSize", "NN_Tensor", _size("deviceID"), _desc(), _size("size")),
    _made(
        "OH_NNTensor_CreateWithFd",
        "NN_Tensor",
        _size("deviceID"),
        _desc(),
        Number("fd", ctypes.c_int, "int"),
        _size("size"),
        _size("offset"),
    ),
    _code("OH_NNTensor_Destroy", TakenObject("tensor", "NN_Tensor")),
    _made("OH_NNTensor_GetDataBuffer", "void", _tensor),
    _code("OH_NNTensor_GetFd", _tensor, OutNumber("fd", ctypes.c_int, "int")),
    _code("OH_NNTensor_GetSize", _tensor, _out_size("size")),
    _code("OH_NNTensor_GetOffset", _tensor, _out_size("offset")),
    _made("OH_NNTensor_GetTensorDesc", "NN_TensorDesc", _tensor),
    _made("OH_NNQuantParam_Create", "NN_QuantParam"),
    _code(
        "OH_NNQuantParam_SetScales",
        Object("quantParams", "NN_QuantParam"),
        Elements("scales", ctypes.c_double, "double", "quantCount"),
    ),
    _code(
        "OH_NNQuantParam_SetZeroPoints",
        Object("quantParams", "NN_QuantParam"),
        Elements("zeroPoints", ctypes.c_int32, "int32_t", "quantCount"),
    ),
    _code(
        "OH_NNQuantParam_SetNumBits",
        Object("quantParams", "NN_QuantParam"),
        Elements("numBits", ctypes.c_uint32, "uint32_t", "quantCount"),
    ),
    _code("OH_NNQuantParam_Destroy", TakenObject("quantParams", "NN_QuantParam")),
    _made("OH_NNModel_Construct", "OH_NNModel"),
    _code("OH_NNModel_AddTensorToModel", _model(), _desc(const="const ")),
    _code("OH_NNModel_SetTensorData", _model(), _uint32("index"), Bytes("dataBuffer", "length")),
    _code("OH_NNModel_SetTensorQuantParams", _model(), _uint32("index"), Object("quantParam", "NN_QuantParam")),
    _code("OH_NNModel_SetTensorType", _model(), _uint32("index"), _enum("tensorType", "OH_NN_TensorType")),
    _code(
        "OH_NNModel_AddOperation",
        _model(),
        _enum("op", "OH_NN_OperationType"),
        Indices("paramIndices"),
        Indices("inputIndices"),
        Indices("outputIndices"),
    ),
    _code("OH_NNModel_SpecifyInputsAndOutputs", _model(), Indices("inputIndices"), Indices("outputIndices")),
    _code("OH_NNModel_Finish", _model()),
    _void("OH_NNModel_Destroy", TakenObject("model", "OH_NNModel")),
    _code(
        "OH_NNModel_GetAvailableOperations",
        _model(),
        _size("deviceID"),
        OutElements("isSupported", ctypes.c_bool, "const bool", "opCount", ctypes.c_uint32, "uint32_t"),
    ),
    _made("OH_NNCompilation_Construct", "OH_NNCompilation", _model("const ")),
    _made("OH_NNCompilation_ConstructWithOfflineModelFile", "OH_NNCompilation", FileName("modelPath")),
    _made("OH_NNCompilation_ConstructWithOfflineModelBuffer", "OH_NNCompilation", Bytes("modelBuffer", "modelSize")),
    _made("OH_NNCompilation_ConstructForCache", "OH_NNCompilation"),
    _code("OH_NNCompilation_SetDevice", _compilation, _size("deviceID")),
    _code("OH_NNCompilation_SetPerformanceMode", _compilation, _enum("performanceMode", "OH_NN_PerformanceMode")),
    _code("OH_NNCompilation_SetPriority", _compilation, _enum("priority", "OH_NN_Priority")),
    _code("OH_NNCompilation_EnableFloat16", _compilation, Number("enableFloat16", ctypes.c_bool, "bool")),
    _code("OH_NNCompilation_SetCache", _compilation, FileName("cachePath"), _uint32("version")),
    _code("OH_NNCompilation_ImportCacheFromBuffer", _compilation, Bytes("buffer", "modelSize")),
    _code("OH_NNCompilation_ExportCacheToBuffer", _compilation, Bytes("buffer", "length"), _out_size("modelSize")),
    _code(
        "OH_NNCompilation_AddExtensionConfig",
        _compilation,
        Text("configName"),
        Bytes("configValue", "configValueSize"),
    ),
    _code("OH_NNCompilation_Build", _compilation),
    _void("OH_NNCompilation_Destroy", TakenObject("compilation", "OH_NNCompilation")),
    _made("OH_NNExecutor_Construct", "OH_NNExecutor", _compilation),
    _void("OH_NNExecutor_Destroy", TakenObject("executor", "OH_NNExecutor")),
    _code("OH_NNExecutor_GetInputCount", _const_executor, _out_size("inputCount")),
    _code("OH_NNExecutor_GetOutputCount", _const_executor, _out_size("outputCount")),
    _made("OH_NNExecutor_CreateInputTensorDesc", "NN_TensorDesc", _const_executor, _size("index")),
    _made("OH_NNExecutor_CreateOutputTensorDesc", "NN_TensorDesc", _const_executor, _size("index")),
    _code(
        "OH_NNExecutor_GetInputDimRange",
        _const_executor,
        _size("index"),
        OutRange("minInputDims", "maxInputDims", "shapeLength"),
    ),
    _code(
        "OH_NNExecutor_GetOutputShape",
        _executor,
        _uint32("outputIndex"),
        OutElements("shape", ctypes.c_int32, "int32_t", "shapeLength", ctypes.c_uint32, "uint32_t"),
    ),
    _code("OH_NNExecutor_SetOnRunDone", _executor, Function("onRunDone", "NN_OnRunDone", _RunDone, _calling_run_done)),
    _code(
        "OH_NNExecutor_SetOnServiceDied",
        _executor,
        Function("onServiceDied", "NN_OnServiceDied", _ServiceDied, _calling_service_died),
    ),
    _code("OH_NNExecutor_RunSync", _executor, *_runs),
    _code(
        "OH_NNExecutor_RunAsync",
        _executor,
        *_runs,
        _int32("timeout"),
        Number("userData", ctypes.c_void_p, "void *"),
    ),
    _code("OH_NNModel_AddTensor", _model(), LegacyTensor("tensor")),
    _code(
        "OH_NNExecutor_SetInput",
        _executor,
        _uint32("inputIndex"),
        LegacyTensor("tensor"),
        Bytes("dataBuffer", "length"),
    ),
    _code("OH_NNExecutor_SetOutput", _executor, _uint32("outputIndex"), Bytes("dataBuffer", "length", "void")),
    _code("OH_NNExecutor_Run", _executor),
    _made("OH_NNExecutor_AllocateInputMemory", "OH_NN_Memory", _executor, _uint32("inputIndex"), _size("length")),
    _made("OH_NNExecutor_AllocateOutputMemory", "OH_NN_Memory", _executor, _uint32("outputIndex"), _size("length")),
    _void("OH_NNExecutor_DestroyInputMemory", _executor, _uint32("inputIndex"), TakenObject("memory", "OH_NN_Memory")),
    _void(
        "OH_NNExecutor_DestroyOutputMemory", _executor, _uint32("outputIndex"), TakenObject("memory", "OH_NN_Memory")
    ),
    _code(
        "OH_NNExecutor_SetInputWithMemory",
        _executor,
        _uint32("inputIndex"),
        LegacyTensor("tensor"),
        Object("memory", "const OH_NN_Memory"),
    ),
    _code(
        "OH_NNExecutor_SetOutputWithMemory", _executor, _uint32("outputIndex"), Object("memory", "const OH_NN_Memory")
    ),
)
