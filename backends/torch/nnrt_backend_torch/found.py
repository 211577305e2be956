"""Devices of this host that torch computes on, and the backend of each."""

from collections.abc import Mapping

import torch

from nnrt_backend_torch.accelerator import AcceleratorBackend
from nnrt_backend_torch.backend import TorchBackend
from nnrt_backend_torch.options import present_devices, read_options
from nnrt_hdi.backend import FoundDevice
from nnrt_hdi.enums import DeviceType


def create(given: Mapping[str, str]) -> TorchBackend:
    """Return the backend with these options; raise what `read_options` raises."""
    options = read_options(given)
    return TorchBackend(options) if options.device.type == "cpu" else AcceleratorBackend(options)


def found_devices() -> list[FoundDevice]:
    """Return each accelerator that torch finds, and the CPU."""
    return [_found(device) for device in present_devices()]


def _found(device: torch.device) -> FoundDevice:
    name, options = str(device).replace(":", "-"), {"device": str(device)}
    if device.type == "cpu":
        return FoundDevice(name, DeviceType.CPU, options)
    # Torch calls AMD's GPUs cuda, too.
    driver = "hip" if device.type == "cuda" and torch.version.hip else device.type
    return FoundDevice(name, DeviceType.GPU, options, f"{driver}:{device.index}")
