"""NNRt for applications: build a model, compile it for a device behind a daemon, run it.

with Runtime(["127.0.0.1:50051"]) as runtime:
    model = Model()
    x = model.input((1, 4), name="x")
    y = model.apply(OperationType.RELU, x)
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    with Compilation(model, runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            (output,) = executor.run_sync([numpy.ones((1, 4), "float32")])
"""

from nnrt_client.bindings import Bindings, Memory
from nnrt_client.build import BuildReport, Origin
from nnrt_client.compilation import Compilation
from nnrt_client.device import Device
from nnrt_client.enums import (
    DataType,
    DeviceType,
    Format,
    FuseType,
    OperationType,
    PadMode,
    PerformanceMode,
    Priority,
    ReturnCode,
    TensorType,
)
from nnrt_client.executor import Executor
from nnrt_client.legacy_tensor import LegacyTensor
from nnrt_client.model import Model, ModelTensor
from nnrt_client.onnx_import import from_onnx
from nnrt_client.process_runtime import connect, disconnect
from nnrt_client.quant_param import QuantParam
from nnrt_client.resident_tensor import ResidentTensor
from nnrt_client.runtime import Runtime
from nnrt_client.savings import Savings
from nnrt_client.session import Session, load
from nnrt_client.settings import Settings
from nnrt_client.tensor import Tensor
from nnrt_client.tensor_desc import TensorDesc
from nnrt_hdi.backend import Capabilities, Support
from nnrt_hdi.enums import DeviceStatus
from nnrt_hdi.errors import (
    ConnectionFailed,
    DynamicShape,
    InvalidFile,
    InvalidParameter,
    InvalidPath,
    NnrtError,
    NullPointer,
    OperationFailed,
    OperationForbidden,
    OutOfMemory,
    SaveCacheFailed,
    TimedOut,
    UnavailableDevice,
    Unsupported,
)
from nnrt_hdi.run_times import RunTimes

__all__ = [
    "Bindings",
    "BuildReport",
    "Capabilities",
    "Compilation",
    "ConnectionFailed",
    "DataType",
    "Device",
    "DeviceStatus",
    "DeviceType",
    "DynamicShape",
    "Executor",
    "Format",
    "FuseType",
    "InvalidFile",
    "InvalidParameter",
    "InvalidPath",
    "LegacyTensor",
    "Memory",
    "Model",
    "ModelTensor",
    "NnrtError",
    "NullPointer",
    "OperationFailed",
    "OperationForbidden",
    "OperationType",
    "Origin",
    "OutOfMemory",
    "PadMode",
    "PerformanceMode",
    "Priority",
    "QuantParam",
    "ResidentTensor",
    "ReturnCode",
    "RunTimes",
    "Runtime",
    "SaveCacheFailed",
    "Savings",
    "Session",
    "Settings",
    "Support",
    "Tensor",
    "TensorDesc",
    "TensorType",
    "TimedOut",
    "UnavailableDevice",
    "Unsupported",
    "connect",
    "disconnect",
    "from_onnx",
    "load",
]
