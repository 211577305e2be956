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

# Providers, by the names that users give them.
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
# The second choice for a provider: it gets the nodes that the first doesn't take. The CPU gets the rest.
_NEXT = {"tensorrt": "cuda"}
# Providers that compile models to programs of their own, which ONNX Runtime can't export.
_COMPILING = frozenset(
    {"tensorrt", "nv_tensorrt_rtx", "migraphx", "openvino", "dnnl", "coreml", "qnn", "cann", "vitisai", "xnnpack"}
)
# Providers with more than one device, and the name of the option that chooses one.
_DEVICE_OPTION = {
    **dict.fromkeys(("cuda", "tensorrt", "nv_tensorrt_rtx", "rocm", "migraphx", "directml", "cann"), "device_id"),
    "webgpu": "deviceId",
}


def present_providers() -> list[str]:
    """Return the providers that this ONNX Runtime has, as users name them."""
    available = set(onnxruntime.get_available_providers())
    return [name for name, provider in PROVIDERS.items() if provider in available]


@dataclass(frozen=True, slots=True)
class ProviderDevice:
    """Provider and device that sessions run on."""

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
        """The fast and exact kernels for 8-bit integers on this device."""
        return integer_kernels(features()) if self.is_cpu else IntegerKernels()

    @property
    def can_export(self) -> bool:
        """True if ONNX Runtime can export the models that it has optimized."""
        return self.provider not in _COMPILING

    def providers(self, extensions: Mapping[str, bytes] | None = None) -> Providers:
        """Return the providers in ONNX Runtime's form. The CPU computes what the others don't take; all need it."""
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
        """Raise InvalidParameter for a device index that the provider can't have."""
        if self.device_index and self.provider not in _DEVICE_OPTION:
            raise InvalidParameter(f"device_index is {self.device_index}, but {self.provider} has one device; use 0")


def load_libraries(device: ProviderDevice) -> None:
    """Load CUDA from the packages that pip installed; ONNX Runtime itself finds only the system's libraries."""
    if device.provider in ("cuda", "tensorrt"):
        with redirect_stdout(sys.stderr):  # It prints the libraries that it doesn't find.
            onnxruntime.preload_dlls()


# Providers for the same devices. The first one present is used: it starts sooner, or can export more.
_SAME_DEVICES = (("cuda", "tensorrt", "nv_tensorrt_rtx"), ("rocm", "migraphx"))
# Providers that compute on the CPU.
_ON_CPU = frozenset({"cpu", "dnnl", "xnnpack", "acl", "armnn", "openvino"})


def accelerators() -> list[str]:
    """Return the present providers that compute on other devices than the CPU, one for each kind of device."""
    present = [name for name in present_providers() if name not in _ON_CPU]
    for same in _SAME_DEVICES:
        others = [name for name in same if name in present][1:]
        present = [name for name in present if name not in others]
    return present
