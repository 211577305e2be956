"""Tensors of runs: a description, and memory that outlives the runs and the daemon."""

from typing import Any

from numpy.typing import NDArray
from typing_extensions import Self

from nnrt_client.session.device import Device
from nnrt_client.tensors.run_tensor import RunTensor, require_device_and_desc
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import DynamicShape, InvalidParameter, OperationFailed
from nnrt_hdi.shared_memory import SharedMemory, checked_size


class Tensor(RunTensor[SharedMemory]):
    """Input or output of runs: a desc of its own, and memory of this process to hold the elements.

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
        require_device_and_desc(device, desc)
        size_bytes = desc.byte_size()
        device._session()
        self._take(device, desc, SharedMemory.allocate(size_bytes))

    @classmethod
    def with_size(cls, device: Device, desc: TensorDesc, size_bytes: int) -> Self:
        """A tensor with room for `size_bytes`: the desc's size at least, where that is known. Raises as above."""
        require_device_and_desc(device, desc)
        _require_room(desc, checked_size(size_bytes))
        device._session()
        return cls._over(device, desc, SharedMemory.allocate(size_bytes))

    @classmethod
    def from_fd(cls, device: Device, desc: TensorDesc, fd: int, size_bytes: int, offset: int = 0) -> Self:
        """A tensor over the bytes [offset, size_bytes) of a file that can be mapped, such as another tensor's.

        The descriptor stays the caller's; the tensor has one of its own. Raises InvalidParameter for a file that is too
        short or can't be mapped for reading and writing. If somebody cuts the file short later, touching the tensor
        ends this process with SIGBUS: take descriptors only from those you trust, or sealed against it (F_SEAL_SHRINK),
        as those of tensors are.
        """
        require_device_and_desc(device, desc)
        region = SharedMemory.of_descriptor(fd, size_bytes, offset)
        try:
            _require_room(desc, len(region.view))
            device._session()
        except BaseException:
            region.close()
            raise
        return cls._over(device, desc, region)

    @classmethod
    def _over(cls, device: Device, desc: TensorDesc, region: SharedMemory) -> Self:
        tensor = cls.__new__(cls)
        tensor._take(device, desc, region)
        return tensor

    def __repr__(self) -> str:
        return f"<Tensor {self._desc!r}>"

    @property
    def desc(self) -> TensorDesc:
        """Its own description: what is set there is what the next run takes."""
        return self._desc

    @property
    def fd(self) -> int:
        """Descriptor of the memory, the tensor's own: duplicate it to keep it."""
        return self._memory.fd

    @property
    def size_bytes(self) -> int:
        """Length of the whole memory, what lies before `offset` included."""
        return self._memory.size_bytes

    @property
    def offset(self) -> int:
        """Offset in its memory at which the tensor begins."""
        return self._memory.offset

    @property
    def data_buffer(self) -> memoryview:
        """The bytes [offset, size_bytes) themselves, to read and write. They stay good while they are referred to."""
        return self._memory.view

    def numpy(self) -> NDArray[Any]:
        """The elements themselves, to read and write, in the shape of the desc.

        Raises DynamicShape while the desc has unknown dimensions, OperationFailed where the memory is smaller than it
        says.
        """
        region, spec = self._memory, self._desc._to_spec()
        if spec.byte_size > len(region.view):
            raise OperationFailed(f"the tensor has {len(region.view)} bytes; its desc {spec} says {spec.byte_size}")
        return region.array(spec.numpy_dtype, spec.shape)

    def _free(self, memory: SharedMemory) -> None:
        memory.close()


def _require_room(desc: TensorDesc, size_bytes: int) -> None:
    try:
        least = desc.byte_size()
    except DynamicShape:  # Judged when a run gives the dimensions.
        return
    if size_bytes < least:
        raise InvalidParameter(f"the tensor has {size_bytes} bytes; {desc} needs {least}")
