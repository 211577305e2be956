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

import nnrt_client.session.fork  # noqa: F401  # Before anything else loads gRPC.

# isort: split

from nnrt_client.build.build_task import BuildReport, Progress
from nnrt_client.build.compilation import Compilation
from nnrt_client.build.way import Way
from nnrt_client.c_interface.bindings import Bindings, Memory
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
from nnrt_client.model.model import Model, ModelTensor
from nnrt_client.model_session.background_write import wait_until_cached
from nnrt_client.model_session.load import load
from nnrt_client.model_session.loading import LoadOptions
from nnrt_client.model_session.model_session import ModelSession, NamedOutputs
from nnrt_client.model_session.partition.fallback import Fallback
from nnrt_client.model_session.partition.report import PartitionReport, PartReport
from nnrt_client.model_session.pool import Pool, PooledSession
from nnrt_client.model_session.reloaded_session import ReloadedSession
from nnrt_client.onnx_import import from_onnx
from nnrt_client.pool.hedging import Hedging
from nnrt_client.pool.member import Member, MemberState
from nnrt_client.pool.report import PoolReport
from nnrt_client.run.executor import Executor
from nnrt_client.run.future import RunFuture
from nnrt_client.run.result import OutputTooSmall, RunResult
from nnrt_client.sequences.glue import DescribedModel, greedy, sample, uniforms
from nnrt_client.sequences.loop import Loop, LoopEnd
from nnrt_client.sequences.sequence import Earlier, Sequence
from nnrt_client.sequences.states import State
from nnrt_client.session.compression import CompressionStatistics
from nnrt_client.session.device import Device
from nnrt_client.session.membership import AddressChange
from nnrt_client.session.process_runtime import connect, disconnect
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import Settings
from nnrt_client.tensors.legacy_tensor import LegacyTensor
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_client.tensors.tensor import Tensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi import __version__ as __version__
from nnrt_hdi.backend import CanaryState, Capabilities, DeviceInfo, DeviceState, Origin, Support, Telemetry
from nnrt_hdi.batching import Batching
from nnrt_hdi.counters import Batches, DeviceCounters, DeviceLoad, Durations, IdentityCounters, Residency
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
from nnrt_hdi.packed_values import ValueType
from nnrt_hdi.run_times import RunTimes

__all__ = [
    "AddressChange",
    "Batches",
    "Batching",
    "Bindings",
    "BuildReport",
    "CanaryState",
    "Capabilities",
    "Compilation",
    "CompressionStatistics",
    "ConnectionFailed",
    "DataType",
    "DescribedModel",
    "Device",
    "DeviceCounters",
    "DeviceInfo",
    "DeviceLoad",
    "DeviceState",
    "DeviceStatus",
    "DeviceType",
    "Durations",
    "DynamicShape",
    "Earlier",
    "Executor",
    "Fallback",
    "Format",
    "FuseType",
    "Hedging",
    "IdentityCounters",
    "InvalidFile",
    "InvalidParameter",
    "InvalidPath",
    "LegacyTensor",
    "LoadOptions",
    "Loop",
    "LoopEnd",
    "Member",
    "MemberState",
    "Memory",
    "Model",
    "ModelSession",
    "ModelTensor",
    "NamedOutputs",
    "NnrtError",
    "NullPointer",
    "OperationFailed",
    "OperationForbidden",
    "OperationType",
    "Origin",
    "OutOfMemory",
    "OutputTooSmall",
    "PadMode",
    "PartReport",
    "PartitionReport",
    "PerformanceMode",
    "Pool",
    "PoolReport",
    "PooledSession",
    "Priority",
    "Progress",
    "QuantParam",
    "ReloadedSession",
    "Residency",
    "ResidentTensor",
    "ReturnCode",
    "RunFuture",
    "RunResult",
    "RunTensor",
    "RunTimes",
    "Runtime",
    "SaveCacheFailed",
    "Sequence",
    "Settings",
    "State",
    "Support",
    "Telemetry",
    "Tensor",
    "TensorDesc",
    "TensorType",
    "TimedOut",
    "UnavailableDevice",
    "Unsupported",
    "ValueType",
    "Way",
    "connect",
    "disconnect",
    "from_onnx",
    "greedy",
    "load",
    "sample",
    "uniforms",
    "wait_until_cached",
]
