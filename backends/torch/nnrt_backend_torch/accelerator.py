"""Backend of an accelerator, which has memory of its own and computes while the host goes on."""

from dataclasses import replace

import torch

from nnrt_backend_torch.backend import TorchBackend
from nnrt_backend_torch.buffers import TorchBuffer
from nnrt_backend_torch.options import Options
from nnrt_backend_torch.pinning import Pinning, cuda_register
from nnrt_hdi.backend import Telemetry

# Runs on the stream at a time: the next one is enqueued while one computes.
ENQUEUED_RUNS = 3


class AcceleratorBackend(TorchBackend):
    """Backend of an accelerator."""

    concurrent_runs = ENQUEUED_RUNS

    def __init__(self, options: Options) -> None:
        """Create the backend."""
        super().__init__(options)
        pinning = Pinning(cuda_register) if options.pinning and options.device.type == "cuda" else None
        self._device = replace(self._device, pinning=pinning, is_accelerator=True)

    def allocate(self, size_bytes: int) -> TorchBuffer:
        return TorchBuffer(size_bytes, self._device.torch_device, self._device.stream)

    def telemetry(self) -> Telemetry | None:
        device = self._device.torch_device
        try:
            free, total = torch.accelerator.get_memory_info(device)
        except (AttributeError, NotImplementedError, RuntimeError):  # Not every kind of device measures it.
            return None
        memory = Telemetry(memory_used_bytes=total - free, memory_total_bytes=total)
        return _measured(device, memory) if device.type == "cuda" else memory


def _measured(device: torch.device, memory: Telemetry) -> Telemetry:
    """Add what NVIDIA's or AMD's library of measurements says, where its package is installed."""
    try:
        return Telemetry(
            temperature_celsius=torch.cuda.temperature(device),
            power_watts=torch.cuda.power_draw(device) / 1e3,
            memory_used_bytes=memory.memory_used_bytes,
            memory_total_bytes=memory.memory_total_bytes,
            clock_hertz=torch.cuda.clock_rate(device) * 1e6,
            utilization=torch.cuda.utilization(device) / 100,
        )
    except (ImportError, RuntimeError):
        return memory
