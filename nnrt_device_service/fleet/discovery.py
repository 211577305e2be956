"""The devices of this host, where no file names them."""

import asyncio
import json
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from nnrt_device_service.fleet.spec import DeviceSpec
from nnrt_device_service.settings import Settings
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import OperationFailed, TimedOut, UnavailableDevice

# Libraries of accelerators may take their time to load.
_TIMEOUT_S = 120.0


async def found_specs() -> list[DeviceSpec]:
    """Every accelerator of every backend; if there is none a CPU, that of the reference backend only if need be.

    A process of its own looks: the libraries of backends stay out of this one, and so does their end. Raises
    UnavailableDevice where there is nothing at all, OperationFailed and TimedOut where nobody can tell.
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
    """The devices to serve of those that `nnrt-device backends --json` lists. Raises UnavailableDevice."""
    found = [(backend["name"], device) for backend in backends for device in backend["devices"]]
    chosen = [(backend, device) for backend, device in found if device["device_type"] != DeviceType.CPU.name]
    if not chosen:
        chosen = sorted(found, key=lambda each: each[0] == Settings().backend)[:1]
    if not chosen:
        raise UnavailableDevice("no backend works here; `nnrt-device backends` says why")
    names = [device["name"] for _, device in chosen]
    return [_spec(backend, device, is_alone=names.count(device["name"]) == 1) for backend, device in chosen]


def host_name() -> str:
    """The first part of this host's name."""
    return socket.gethostname().partition(".")[0] or "host"


def _spec(backend: str, device: Mapping[str, Any], *, is_alone: bool) -> DeviceSpec:
    name = device["name"] if is_alone else f"{backend}-{device['name']}"
    options = (f"--option={key}={value}" for key, value in sorted(device["options"].items()))
    return DeviceSpec(name, (f"--backend={backend}", f"--name={host_name()}-{name}", *options))
