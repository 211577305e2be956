"""Memory on the device of a session, for outputs that stay there."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from nnrt_client.onnxruntime.value_memory import resident
from nnrt_client.session.device import Device
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_hdi.tensor import TensorSpec


class DeviceMemory:
    """Memory on a session's device for its outputs. What the value in it is done with is used again."""

    # What an output of unknown size may grow by before it needs other memory.
    _GROWTH = 2

    def __init__(self, device: Device, specs: Mapping[str, TensorSpec]) -> None:
        self.spare: defaultdict[str, deque[ResidentTensor]] = defaultdict(deque)
        self._device = device
        self._specs = specs
        self.tensors: list[ResidentTensor] = []

    def taken(self, name: str) -> ResidentTensor | None:
        """Memory for an output; None where its size is known only after the first run."""
        spare, spec = self.spare[name], self._specs[name]
        with suppress(IndexError):  # Another thread may take the last.
            while True:
                tensor = spare.pop()
                if tensor._memory.session.is_alive:
                    return tensor
                self.tensors.remove(tensor)  # It is gone with its daemon.
        return None if spec.is_dynamic else self.made(name, spec.shape)

    def made(self, name: str, shape: Sequence[int]) -> ResidentTensor:
        """New memory for an output of this shape, and for larger ones where its size varies."""
        spec = self._specs[name]
        size_bytes = int(np.prod(shape, dtype=np.int64)) * spec.item_size
        tensor = resident(
            self._device, spec.numpy_dtype, spec.shape, size_bytes * self._GROWTH if spec.is_dynamic else size_bytes
        )
        self.tensors.append(tensor)
        return tensor

    def replaced(self, name: str, tensor: ResidentTensor, shape: Sequence[int]) -> ResidentTensor:
        """Other memory for an output that has no room in this one."""
        self.tensors.remove(tensor)
        tensor.close()
        return self.made(name, shape)

    def close(self) -> None:
        """Free it all."""
        for tensor in self.tensors:
            tensor.close()
        self.tensors.clear()
