"""Devices of this host that ONNX Runtime computes on."""

import ctypes
from collections.abc import Iterator

from nnrt_backend_onnxruntime.providers import ProviderDevice, accelerators, load_libraries
from nnrt_backend_onnxruntime.session import smallest_session
from nnrt_hdi.backend import FoundDevice
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import NnrtError

# Drivers that count their devices, as CUDA_VISIBLE_DEVICES and the like restrict them: the library, the function that
# starts it, and the function that counts. Both functions return 0 for success.
_DRIVERS = {
    "cuda": ("libcuda.so.1", "cuInit", "cuDeviceGetCount"),
    "hip": ("libamdhip64.so", "hipInit", "hipGetDeviceCount"),
}
_DRIVER_OF = {
    **dict.fromkeys(("cuda", "tensorrt", "nv_tensorrt_rtx"), "cuda"),
    **dict.fromkeys(("rocm", "migraphx"), "hip"),
}


def devices() -> list[FoundDevice]:
    """Return each accelerator of the providers that this ONNX Runtime has, and the CPU."""
    return [*_accelerators(), FoundDevice("cpu", DeviceType.CPU, {"provider": "cpu"})]


def _accelerators() -> Iterator[FoundDevice]:
    for provider in accelerators():
        driver = _DRIVER_OF.get(provider)
        count = device_count(*_DRIVERS[driver]) if driver else int(_starts(provider))
        for index in range(count):
            kind = ProviderDevice(provider, index, threads=1).device_type
            options = {"provider": provider, "device_index": str(index)}
            if driver:
                yield FoundDevice(f"{provider}-{index}", kind, options, f"{driver}:{index}")
            else:
                yield FoundDevice(provider, kind, options)


def device_count(library: str, start: str, count: str) -> int:
    """Return the number of devices of a driver; 0 where the driver is missing."""
    number = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL(library)
        has_failed = getattr(driver, start)(0) or getattr(driver, count)(ctypes.byref(number))
    except (OSError, AttributeError):
        return 0
    return 0 if has_failed else number.value


def _starts(provider: str) -> bool:
    device = ProviderDevice(provider, 0, threads=1)
    try:
        load_libraries(device)
        smallest_session(device)
    except NnrtError:
        return False
    return True
