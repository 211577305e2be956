"""Registration of memory that the daemon shares with clients, so that the device copies from and to it directly.

Large tensors of a client on this host lie in memory that both have mapped, and that stays mapped for many runs. CUDA
copies from such memory in one step if it is registered (`cudaHostRegister`), else through a buffer of its own.
"""

import logging
import mmap
import threading
import weakref
from collections.abc import Callable

import numpy as np
import torch

from nnrt_hdi.mapped_files import mapping_of
from nnrt_hdi.tensor import Array

_log = logging.getLogger(__name__)
# The least bytes of a tensor for which it pays.
_LEAST_BYTES = 1 << 16

# Registers memory, given its address and bytes, and returns what undoes that.
Register = Callable[[int, int], Callable[[], object]]


class Pinning:
    """Registry of mapped memory. Memory that can't be registered is used as it is."""

    def __init__(self, register: Register) -> None:
        self._register = register
        self._lock = threading.Lock()
        # By their ids. A mapping leaves when it is freed, before its memory is unmapped.
        self._known: dict[int, weakref.finalize[..., mmap.mmap]] = {}

    def pin(self, array: Array) -> None:
        """Register the memory in which a large array lies, if that is mapped and isn't registered yet."""
        if array.nbytes < _LEAST_BYTES:
            return
        mapping = mapping_of(array, mmap.mmap)
        if mapping is None or id(mapping) in self._known:
            return
        memory = np.frombuffer(mapping, np.uint8)
        address, is_writable = memory.ctypes.data, memory.flags.writeable
        del memory
        if not is_writable:  # Not every device takes it.
            return
        with self._lock:
            if id(mapping) in self._known:
                return
            try:
                undo = self._register(address, len(mapping))
            except RuntimeError as error:
                _log.warning("shared memory could not be registered, and is used as it is: %s", error)
                undo = int
            self._known[id(mapping)] = weakref.finalize(mapping, self._forget, id(mapping), undo)

    def _forget(self, key: int, undo: Callable[[], object]) -> None:
        self._known.pop(key, None)
        undo()


def cuda_register(address: int, size_bytes: int) -> Callable[[], object]:
    """Register memory with CUDA or ROCm; raise RuntimeError if the driver refuses."""
    runtime = torch.cuda.cudart()
    torch.cuda.check_error(int(runtime.cudaHostRegister(address, size_bytes, 0)))
    return lambda: runtime.cudaHostUnregister(address)
