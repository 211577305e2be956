"""Functions of devices, which are those of the process-wide runtime."""

from collections.abc import Sequence

from nnrt_client.c_interface.adapter import (
    returns_value,
)
from nnrt_client.c_interface.constants import OH_NN_DeviceType
from nnrt_client.session.device import Device
from nnrt_client.session.process_runtime import process_runtime
from nnrt_hdi.errors import InvalidParameter, OperationFailed, UnavailableDevice


def device_of(device_id: int) -> Device:
    """Return the device with an id. Raise OperationFailed, NNRt's FAILED, if no such device answers."""
    runtime = process_runtime()
    device = runtime.find(device_id)
    if device is None:
        raise OperationFailed(runtime._not_found_error(device_id).message)
    return device


@returns_value("ids", (), "Runtime.devices, Device.id")
def OH_NNDevice_GetAllDevicesID() -> Sequence[int]:
    """Return the ids of the devices that answer now and accept work, in the order of their addresses."""
    return tuple(device.id for device in process_runtime().devices())


@returns_value("name", None, "Device.name")
def OH_NNDevice_GetName(device_id: int) -> str:
    """Return the unique name: device, vendor and version of the device interface."""
    return device_of(device_id).name


@returns_value("type", None, "Device.type")
def OH_NNDevice_GetType(device_id: int) -> OH_NN_DeviceType:
    """Return the kind of processor. INVALID_PARAMETER, where other functions have FAILED, for an unknown id."""
    runtime = process_runtime()
    device = runtime.find(device_id)
    if device is None and device_id and runtime._has_seen(device_id):
        raise UnavailableDevice(f"device {device_id} is gone; look which there are")
    if device is None:
        raise InvalidParameter(f"no device {device_id} answers; look which there are")
    return device.type
