"""Memory on a session's device for outputs that stay there."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from nnrt_client.onnxruntime.value_memory import allocate_resident
from nnrt_client.session.device import Device
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_hdi.tensor import TensorSpec


class DeviceMemory:
    """Memory on a session's device for its outputs.

    A later run reuses the memory of an output when the garbage collector has freed the output's value.
    """

    # Memory for an output of unknown size is this many times as large as its first result.
    _GROWTH = 2

    def __init__(self, device: Device, specs: Mapping[str, TensorSpec]) -> None:
        self.spare: defaultdict[str, deque[ResidentTensor]] = defaultdict(deque)
        self._device = device
        self._specs = specs
        self.tensors: list[ResidentTensor] = []

    def take(self, name: str) -> ResidentTensor | None:
        """Return memory for an output, or None if its size is known only after the first run."""
        spare, spec = self.spare[name], self._specs[name]
        with suppress(IndexError):  # Another thread may take the last one.
            while True:
                tensor = spare.pop()
                if tensor._memory.session.is_alive:
                    return tensor
                self.tensors.remove(tensor)  # Its daemon has died.
        return None if spec.is_dynamic else self.allocate(name, spec.shape)

    def allocate(self, name: str, shape: Sequence[int]) -> ResidentTensor:
        """Allocate memory for an output of this shape, with room for larger results if its size varies."""
        spec = self._specs[name]
        size_bytes = int(np.prod(shape, dtype=np.int64)) * spec.item_size
        tensor = allocate_resident(
            self._device, spec.numpy_dtype, spec.shape, size_bytes * self._GROWTH if spec.is_dynamic else size_bytes
        )
        self.tensors.append(tensor)
        return tensor

    def replace(self, name: str, tensor: ResidentTensor, shape: Sequence[int]) -> ResidentTensor:
        """Replace the memory of an output that needs more room."""
        self.tensors.remove(tensor)
        tensor.close()
        return self.allocate(name, shape)

    def close(self) -> None:
        """Free all memory."""
        for tensor in self.tensors:
            tensor.close()
        self.tensors.clear()
