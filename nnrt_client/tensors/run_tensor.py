"""Base class of tensors that runs read and write."""

import threading
from abc import abstractmethod
from typing import Generic, TypeVar

from nnrt_client.session.device import Device
from nnrt_client.session.fork import LockOwner
from nnrt_client.tensors.device_buffer import DeviceBuffer
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.tensor import Shape

# Stands for the application among the users of a tensor.
_OWNER = object()

MemoryT = TypeVar("MemoryT", SharedMemory, DeviceBuffer)


class RunTensor(LockOwner, Closable, Generic[MemoryT]):
    """Base of Tensor and ResidentTensor: a description, and memory for an input or output of runs.

    The memory lives until the tensor is closed and the last run that uses it has ended. A tensor is a context manager.
    """

    def _take(self, device: Device, desc: TensorDesc, memory: MemoryT) -> None:
        self._device = device
        self._desc = desc.copy()
        self._unfreed_memory: MemoryT | None = memory
        super().__init__()
        self._is_open = True
        # The application, until it closes the tensor, and runs.
        self._users: set[object] = {_OWNER}

    def _make_locks(self) -> None:
        self._lock = threading.RLock()

    @property
    def device(self) -> Device:
        """Device of the tensor."""
        return self._device

    @property
    @abstractmethod
    def desc(self) -> TensorDesc:
        """Description of the elements, which the next run reads or the last run wrote."""

    def close(self) -> None:
        """Close the tensor. Its memory is freed as soon as no run uses it. Idempotent."""
        with self._lock:
            was_open, self._is_open = self._is_open, False
        if was_open:
            self._release(_OWNER)

    @property
    def _memory(self) -> MemoryT:
        """Memory of the elements. Raises InvalidParameter if it has been freed."""
        memory = self._unfreed_memory
        if memory is None:
            raise InvalidParameter("the tensor is closed; make a new one")
        return memory

    @property
    def _target_desc(self) -> TensorDesc:
        """Description that a run's output must fit to be written into this tensor."""
        return self._desc

    def _take_shape(self, shape: Shape) -> None:
        """Record the shape that a run has written."""
        self._desc._take_shape(shape)

    def _retain(self, user: object) -> MemoryT:
        """Return the memory, and keep it alive until `_release` by the same user.

        Raises:
            InvalidParameter: The tensor is closed.
        """
        with self._lock:
            if not self._is_open:
                raise InvalidParameter("the tensor is closed; make a new one")
            self._users.add(user)
            return self._memory

    def _release(self, user: object) -> None:
        """End the use by this user. Do nothing if there is none, as after an interrupted `_retain`."""
        with self._lock:
            self._users.discard(user)
            if self._users:
                return
            memory, self._unfreed_memory = self._unfreed_memory, None
        if memory is not None:
            self._free(memory)

    @abstractmethod
    def _free(self, memory: MemoryT) -> None:
        """Free the memory, which nothing uses any more."""


def require_device_and_desc(device: Device, desc: TensorDesc) -> None:
    """Raise InvalidParameter for anything but a Device and a TensorDesc."""
    if not isinstance(desc, TensorDesc):
        raise InvalidParameter(f"the desc is {desc!r}; give a TensorDesc")
    if not isinstance(device, Device):
        raise InvalidParameter(f"the device is {device!r}; give a Device")
