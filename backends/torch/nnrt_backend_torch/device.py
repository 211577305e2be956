"""Device of torch, with what all models on it share."""

from dataclasses import dataclass

import torch

from nnrt_backend_torch.pinning import Pinning
from nnrt_backend_torch.stream import Stream


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """Device of torch, its stream, and the registry of pinned memory, if the device gains something from that."""

    torch_device: torch.device
    stream: Stream
    pinning: Pinning | None = None
    # Whether it has memory of its own and computes while the host goes on.
    is_accelerator: bool = False
    # Whether each kind of run is compiled before the first one.
    compiles: bool = False
