"""What all tensors of runs are, wherever their memory is."""

import threading
from abc import abstractmethod
from types import TracebackType
from typing import Generic, TypeVar

from typing_extensions import Self

from nnrt_client.buffer import Buffer
from nnrt_client.device import Device
from nnrt_client.fork import LockOwner
from nnrt_client.region import Region
from nnrt_client.tensor_desc import TensorDesc
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import Shape

MemoryT = TypeVar("MemoryT", Region, Buffer)


class RunTensor(LockOwner, Generic[MemoryT]):
    """A desc, and memory that lives until the tensor is closed and the last run that uses it has ended.

    A context manager.
    """

    def _take(self, device: Device, desc: TensorDesc, memory: MemoryT) -> None:
        self._device = device
        self._desc = desc.copy()
        self._memory: MemoryT | None = memory
        super().__init__()
        self._is_open = True
        self._users = 1

    def make_locks(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def device(self) -> Device:
        return self._device

    @property
    @abstractmethod
    def desc(self) -> TensorDesc:
        """What the next run takes, and the last one has written."""

    def close(self) -> None:
        """Give the memory back, when no run uses it any more. Idempotent."""
        with self._lock:
            was_open, self._is_open = self._is_open, False
        if was_open:
            self.release()

    # ---- for runs

    @property
    def memory(self) -> MemoryT:
        """Where its elements are. Raises InvalidParameter once that is given back."""
        memory = self._memory
        if memory is None:
            raise InvalidParameter("the tensor is closed; make a new one")
        return memory

    @property
    def target_desc(self) -> TensorDesc:
        """A copy of what an output that is put here must be."""
        return self._desc.copy()

    def take_shape(self, shape: Shape) -> None:
        """A run has written elements of this shape."""
        self._desc.take_shape(shape)

    def retain(self) -> None:
        """Keep the memory until `release`. Raises InvalidParameter for a closed tensor."""
        with self._lock:
            if not self._is_open:
                raise InvalidParameter("the tensor is closed; make a new one")
            self._users += 1

    def release(self) -> None:
        """Give up one use."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            memory, self._memory = self._memory, None
        assert memory is not None
        self._give_back(memory)

    @abstractmethod
    def _give_back(self, memory: MemoryT) -> None:
        """Free the memory: nothing uses it any more."""


def require_device_and_desc(device: Device, desc: TensorDesc) -> None:
    """Refuse what is none."""
    if not isinstance(desc, TensorDesc):
        raise InvalidParameter(f"the desc is {desc!r}; give a TensorDesc")
    if not isinstance(device, Device):
        raise InvalidParameter(f"the device is {device!r}; give a Device")
