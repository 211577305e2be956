"""Devices of this host that torch computes on."""

from nnrt_backend_torch.options import present_devices
from nnrt_hdi.backend import FoundDevice
from nnrt_hdi.enums import DeviceType


def devices() -> list[FoundDevice]:
    """Return each accelerator that torch finds, and the CPU."""
    return [
        FoundDevice(
            str(device).replace(":", "-"),
            DeviceType.CPU if device.type == "cpu" else DeviceType.GPU,
            {"device": str(device)},
        )
        for device in present_devices()
    ]
