"""Options of the backend."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch

from nnrt_hdi.backend import BackendSkipped
from nnrt_hdi.errors import InvalidParameter


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the backend, as `nnrt-device serve --backend torch --backend-option NAME=VALUE` takes them."""

    device: torch.device
    # Threads that compute a run on a CPU.
    threads: int
    # Whether products of FLOAT32 matrices may be computed in TF32, with 10 bits of mantissa: faster on CUDA.
    tf32: bool
    # Whether torch compiles each kind of run, see `nnrt_backend_torch.compiling`.
    compile: bool
    # The device's name; empty for one that follows from `device`.
    name: str


NAMES = tuple(field.name for field in fields(Options))


def read_options(given: Mapping[str, str]) -> Options:
    """Return the options.

    Raises:
        InvalidParameter: An option is unknown, or its value is wrong.
        BackendSkipped: This host has no such device.
    """
    for name in given:
        if name not in NAMES:
            raise InvalidParameter(f"the torch backend has no option {name!r}; it has {', '.join(NAMES)}")
    threads = given.get("threads", str(processors()))
    if not (threads.isascii() and threads.isdigit() and len(threads) < 6 and int(threads)):
        raise InvalidParameter(f"option threads is {threads!r}; use a number of 1 or more")
    device = _device(given.get("device", "cpu"))
    return Options(device, int(threads), _is_on(given, "tf32"), _is_on(given, "compile"), given.get("name", ""))


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def present_devices() -> list[torch.device]:
    """Return the devices that torch can compute on here; the CPU is the last."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    count = torch.accelerator.device_count() if accelerator is not None else 0
    return [*(torch.device(accelerator.type, index) for index in range(count) if accelerator), torch.device("cpu")]


def _is_on(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "no")
    if text not in ("yes", "no"):
        raise InvalidParameter(f"option {name} is {text!r}; use yes or no")
    return text == "yes"


def _device(text: str) -> torch.device:
    try:
        device = torch.device(text)
    except RuntimeError as error:
        raise InvalidParameter(f"option device is {text!r}; use cpu, cuda:0, mps, xpu:0 or the like") from error
    if device.type != "cpu" and device.index is None:
        device = torch.device(device.type, 0)
    if device not in (present := present_devices()):
        raise BackendSkipped(
            f"torch {torch.__version__} has no device {text!r} here; present: {', '.join(map(str, present))}"
        )
    return device
