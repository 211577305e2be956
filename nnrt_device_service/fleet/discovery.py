"""Discovery of this host's devices, for a fleet without a fleet file."""

import asyncio
import json
import logging
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from nnrt_device_service.fleet.spec import DeviceSpec
from nnrt_device_service.settings import Settings
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import OperationFailed, TimedOut, UnavailableDevice

_log = logging.getLogger(__name__)

# Libraries of accelerators may load slowly.
_TIMEOUT_S = 120.0


async def find_specs() -> list[DeviceSpec]:
    """Return the accelerators of all backends, or one CPU if there is no accelerator.

    Another process lists them, so that this process neither loads the backends' libraries nor dies with them. Raises
    UnavailableDevice if no backend works here, and OperationFailed or TimedOut if the list can't be made.
    """
    command = [sys.executable, "-m", "nnrt_device_service", "backends", "--json"]
    looking = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        listed, _ = await asyncio.wait_for(looking.communicate(), _TIMEOUT_S)
    except asyncio.TimeoutError as error:
        looking.kill()
        raise TimedOut(f"the backends did not say within {_TIMEOUT_S:g} s which devices there are") from error
    if looking.returncode:
        raise OperationFailed(f"the look for devices ended with {looking.returncode}; see `nnrt-device backends`")
    return specs_of(json.loads(listed))


def specs_of(backends: Sequence[Mapping[str, Any]]) -> list[DeviceSpec]:
    """Choose the devices to serve from the list of `nnrt-device backends --json`.

    Chooses all accelerators. One that several backends find gets the first of them in the list, and a warning names the
    others. Without any accelerator, chooses one CPU, that of the default backend last. Raises UnavailableDevice if
    there is no device.
    """
    found = [(backend["name"], device) for backend in backends for device in backend["devices"]]
    chosen, backend_of = list[tuple[str, Mapping[str, Any]]](), dict[str, str]()
    for backend, device in found:
        hardware = device["hardware"] or f"{backend} {device['name']}"
        if device["device_type"] == DeviceType.CPU.name:
            continue
        if backend_of.setdefault(hardware, backend) == backend:
            chosen.append((backend, device))
        else:
            _log.warning(
                "%s of the backend %s is passed over: it is %s, which the backend %s serves; a fleet file can choose"
                " otherwise",
                *(device["name"], backend, hardware, backend_of[hardware]),
            )
    if not chosen:
        chosen = sorted(found, key=lambda each: each[0] == Settings().backend)[:1]
    if not chosen:
        raise UnavailableDevice("no backend works here; `nnrt-device backends` says why")
    names = [device["name"] for _, device in chosen]
    return [_spec(backend, device, is_alone=names.count(device["name"]) == 1) for backend, device in chosen]


def host_name() -> str:
    """Return the first label of this host's name."""
    return socket.gethostname().partition(".")[0] or "host"


def _spec(backend: str, device: Mapping[str, Any], *, is_alone: bool) -> DeviceSpec:
    name = device["name"] if is_alone else f"{backend}-{device['name']}"
    options = (f"--option={key}={value}" for key, value in sorted(device["options"].items()))
    return DeviceSpec(name, (f"--backend={backend}", f"--name={host_name()}-{name}", *options))
