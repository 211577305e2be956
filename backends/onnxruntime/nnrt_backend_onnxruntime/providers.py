"""Execution providers of ONNX Runtime, and the devices that they compute on."""

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass

import onnxruntime

from nnrt_backend_onnxruntime.extensions import provider_options
from nnrt_backend_onnxruntime.kernels import Providers
from nnrt_backend_onnxruntime.processor import IntegerKernels, features, integer_kernels
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import InvalidParameter

# Providers under the names that users give them.
PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "nv_tensorrt_rtx": "NvTensorRTRTXExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "dnnl": "DnnlExecutionProvider",
    "directml": "DmlExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "qnn": "QNNExecutionProvider",
    "cann": "CANNExecutionProvider",
    "vitisai": "VitisAIExecutionProvider",
    "webgpu": "WebGpuExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    "acl": "ACLExecutionProvider",
    "armnn": "ArmNNExecutionProvider",
}
_GPUS = frozenset({"cuda", "tensorrt", "nv_tensorrt_rtx", "rocm", "migraphx", "directml", "webgpu"})
# What a provider leaves, ONNX Runtime may compute on these before it does on the CPU.
_NEXT = {"tensorrt": "cuda"}
# Providers that make programs of their own of a model, which ONNX Runtime can't write down.
_COMPILING = frozenset(
    {"tensorrt", "nv_tensorrt_rtx", "migraphx", "openvino", "dnnl", "coreml", "qnn", "cann", "vitisai", "xnnpack"}
)
# Providers with more than one device, which they call so.
_DEVICE_OPTION = {
    **dict.fromkeys(("cuda", "tensorrt", "nv_tensorrt_rtx", "rocm", "migraphx", "directml", "cann"), "device_id"),
    "webgpu": "deviceId",
}


def present_providers() -> list[str]:
    """The providers that this ONNX Runtime was built with, as users name them."""
    available = set(onnxruntime.get_available_providers())
    return [name for name, provider in PROVIDERS.items() if provider in available]


@dataclass(frozen=True, slots=True)
class ProviderDevice:
    """The provider and device that sessions run on."""

    provider: str
    device_index: int
    threads: int

    @property
    def device_type(self) -> DeviceType:
        if self.provider == "cpu":
            return DeviceType.CPU
        return DeviceType.GPU if self.provider in _GPUS else DeviceType.ACCELERATOR

    @property
    def is_cpu(self) -> bool:
        return self.provider == "cpu"

    @property
    def integers(self) -> IntegerKernels:
        """The kernels of 8-bit integers that are fast and exact on this device."""
        return integer_kernels(features()) if self.is_cpu else IntegerKernels()

    @property
    def can_export(self) -> bool:
        """ONNX Runtime can write down the models that it has optimized."""
        return self.provider not in _COMPILING

    def providers(self, extensions: Mapping[str, bytes] | None = None) -> Providers:
        """The providers as ONNX Runtime takes them: the CPU computes what the others leave, as all of them need."""
        chosen = [(self.provider, provider_options(self.provider, extensions or {}))]
        if next_one := _NEXT.get(self.provider):
            chosen.append((next_one, {}))
        for name, options in chosen:
            if device_option := _DEVICE_OPTION.get(name):
                options[device_option] = str(self.device_index)
        if not self.is_cpu:
            chosen.append(("cpu", {}))
        return [(PROVIDERS[name], options) for name, options in chosen]

    def require_device_index(self) -> None:
        """Refuse a device that the provider can't have."""
        if self.device_index and self.provider not in _DEVICE_OPTION:
            raise InvalidParameter(f"device_index is {self.device_index}, but {self.provider} has one device; use 0")


def load_libraries(device: ProviderDevice) -> None:
    """Load CUDA from where pip installs it; ONNX Runtime itself looks where the system has its libraries."""
    if device.provider in ("cuda", "tensorrt"):
        with redirect_stdout(sys.stderr):  # It prints what it doesn't find.
            onnxruntime.preload_dlls()


# One of those that compute on the same devices, the first that is there: it starts sooner, or writes down more.
_SAME_DEVICES = (("cuda", "tensorrt", "nv_tensorrt_rtx"), ("rocm", "migraphx"))
# Libraries for the CPU.
_ON_CPU = frozenset({"cpu", "dnnl", "xnnpack", "acl", "armnn", "openvino"})


def accelerators() -> list[str]:
    """The present providers that compute elsewhere than on the CPU, for each kind of device one."""
    present = [name for name in present_providers() if name not in _ON_CPU]
    for same in _SAME_DEVICES:
        others = [name for name in same if name in present][1:]
        present = [name for name in present if name not in others]
    return present
