"""Tensors of runs: a description, and memory that outlives the runs and the daemon."""

import threading
from types import TracebackType
from typing import Any

from numpy.typing import NDArray
from typing_extensions import Self

from nnrt_client.device import Device
from nnrt_client.fork import LockOwner
from nnrt_client.region import Region, checked_size
from nnrt_client.tensor_desc import TensorDesc
from nnrt_hdi.errors import DynamicShape, InvalidParameter, OperationFailed


class Tensor(LockOwner):
    """What a run reads or writes: a desc of its own, and memory to hold the elements.

    The memory is this process's, reached through a descriptor that others may map too; it stays good when the daemon
    dies, and serves runs on any device. Set the shape of `desc` to choose the dimensions of the next run, as far as the
    memory reaches; after a run it holds the shape of what was written. While a run is under way, leave its tensors
    alone.

    A context manager. What runs and views use when it is closed lives on until they have ended.
    """

    def __init__(self, device: Device, desc: TensorDesc) -> None:
        """A tensor of exactly the desc's size.

        Raises DynamicShape or InvalidParameter where the desc has no size, OutOfMemory beyond 1 GiB, and
        UnavailableDevice if the device is gone.
        """
        _require(device, desc)
        size_bytes = desc.byte_size()
        device.link()
        self._take(device, desc, Region.allocate(size_bytes))

    @classmethod
    def with_size(cls, device: Device, desc: TensorDesc, size_bytes: int) -> Self:
        """A tensor with room for `size_bytes`: the desc's size at least, where that is known. Raises as above."""
        _require(device, desc)
        _require_room(desc, checked_size(size_bytes))
        device.link()
        return cls._over(device, desc, Region.allocate(size_bytes))

    @classmethod
    def from_fd(cls, device: Device, desc: TensorDesc, fd: int, size_bytes: int, offset: int = 0) -> Self:
        """A tensor over the bytes [offset, size_bytes) of a file that can be mapped, such as another tensor's.

        The descriptor stays the caller's; the tensor has one of its own. Raises InvalidParameter for a file that is too
        short or can't be mapped for reading and writing. If somebody cuts the file short later, touching the tensor
        ends this process with SIGBUS: take descriptors only from those you trust, or sealed against it (F_SEAL_SHRINK),
        as those of tensors are.
        """
        _require(device, desc)
        region = Region.of_descriptor(fd, size_bytes, offset)
        try:
            _require_room(desc, len(region.view))
            device.link()
        except BaseException:
            region.close()
            raise
        return cls._over(device, desc, region)

    @classmethod
    def _over(cls, device: Device, desc: TensorDesc, region: Region) -> Self:
        tensor = cls.__new__(cls)
        tensor._take(device, desc, region)
        return tensor

    def _take(self, device: Device, desc: TensorDesc, region: Region) -> None:
        self._device = device
        self._desc = desc.copy()
        self._region: Region | None = region
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

    def __repr__(self) -> str:
        return f"<Tensor {self._desc!r}>"

    @property
    def device(self) -> Device:
        return self._device

    @property
    def desc(self) -> TensorDesc:
        """Its own description: what is set there is what the next run takes."""
        return self._desc

    @property
    def fd(self) -> int:
        """Descriptor of the memory, the tensor's own: duplicate it to keep it."""
        return self.region.fd

    @property
    def size_bytes(self) -> int:
        """Length of the whole memory, what lies before `offset` included."""
        return self.region.size_bytes

    @property
    def offset(self) -> int:
        """Where in its memory the tensor begins."""
        return self.region.offset

    @property
    def data_buffer(self) -> memoryview:
        """The bytes [offset, size_bytes) themselves, to read and write. They stay good while they are referred to."""
        return self.region.view

    def numpy(self) -> NDArray[Any]:
        """The elements themselves, to read and write, in the shape of the desc.

        Raises DynamicShape while the desc has unknown dimensions, OperationFailed where the memory is smaller than it
        says.
        """
        region, spec = self.region, self._desc.to_spec()
        if spec.byte_size > len(region.view):
            raise OperationFailed(f"the tensor has {len(region.view)} bytes; its desc {spec} says {spec.byte_size}")
        return region.array(spec.numpy_dtype, spec.shape)

    def close(self) -> None:
        """Give the memory back, when no run uses it any more. Idempotent."""
        with self._lock:
            was_open, self._is_open = self._is_open, False
        if was_open:
            self.release()

    # ---- for runs

    @property
    def region(self) -> Region:
        """Its memory. Raises InvalidParameter once that is given back."""
        region = self._region
        if region is None:
            raise InvalidParameter("the tensor is closed; make a new one")
        return region

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
            region, self._region = self._region, None
        assert region is not None
        region.close()


def _require(device: Device, desc: TensorDesc) -> None:
    if not isinstance(desc, TensorDesc):
        raise InvalidParameter(f"the desc is {desc!r}; give a TensorDesc")
    if not isinstance(device, Device):
        raise InvalidParameter(f"the device is {device!r}; give a Device")


def _require_room(desc: TensorDesc, size_bytes: int) -> None:
    try:
        least = desc.byte_size()
    except DynamicShape:  # Judged when a run gives the dimensions.
        return
    if size_bytes < least:
        raise InvalidParameter(f"the tensor has {size_bytes} bytes; {desc} needs {least}")
