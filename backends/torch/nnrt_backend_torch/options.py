"""Options of the backend."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch

from nnrt_hdi.backend import BackendSkipped
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.host_limits import processors


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the backend, as `nnrt-device serve --backend torch --option NAME=VALUE` takes them."""

    device: torch.device
    # Threads that compute a run on a CPU.
    threads: int
    # Whether products of FLOAT32 matrices may be computed in TF32, with 10 bits of mantissa: faster on CUDA.
    tf32: bool
    # Whether memory that is shared with clients is registered with CUDA, see `nnrt_backend_torch.pinning`.
    pinning: bool
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
    most = processors()
    threads = given.get("threads", str(most))
    if not (threads.isascii() and threads.isdigit() and len(threads) < 6 and 1 <= int(threads) <= most):
        raise InvalidParameter(f"option threads is {threads!r}; use 1..{most}, for there are {most} processors")
    device = _device(given.get("device", "cpu"))
    switches = {name: _is_on(given, name) for name in ("tf32", "pinning", "compile")}
    return Options(device, int(threads), **switches, name=given.get("name", ""))


def present_devices() -> list[torch.device]:
    """Return the devices that torch can compute on here; the CPU is the last."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return [torch.device("cpu")]
    count = torch.accelerator.device_count()
    return [*(torch.device(accelerator.type, index) for index in range(count)), torch.device("cpu")]


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
    device = torch.device("cpu") if device.type == "cpu" else torch.device(device.type, device.index or 0)
    if device not in (present := present_devices()):
        raise BackendSkipped(
            f"torch {torch.__version__} has no device {text!r} here; present: {', '.join(map(str, present))}"
        )
    return device
