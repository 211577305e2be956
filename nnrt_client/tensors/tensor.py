"""Tensor in shared memory of this process, which outlives runs and the daemon."""

from typing import Any

from numpy.typing import NDArray
from typing_extensions import Self

from nnrt_client.session.device import Device
from nnrt_client.tensors.run_tensor import RunTensor, require_device_and_desc
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import DynamicShape, InvalidParameter, OperationFailed
from nnrt_hdi.shared_memory import SharedMemory, checked_size


class Tensor(RunTensor[SharedMemory]):
    """Input or output of runs in memory of this process, which a daemon on the same host maps.

    The memory has a file descriptor, which other processes may map, too. It survives the daemon, and runs on any device
    may use it. Set the shape of `desc` to choose the dimensions of the next run, within the memory's size. After a run,
    the desc has the shape that the run has written. Don't read or write a tensor while a run uses it.

    A tensor is a context manager. After `close`, the memory lives on while runs and views use it.
    """

    def __init__(self, device: Device, desc: TensorDesc) -> None:
        """Create a tensor of exactly the desc's size.

        Raises:
            DynamicShape: The desc has open dimensions.
            InvalidParameter: The desc has no shape or data type.
            OutOfMemory: The size is above 1 GiB, or there is no memory.
            UnavailableDevice: The daemon has died.
        """
        require_device_and_desc(device, desc)
        size_bytes = desc.byte_size()
        device._session()
        self._take(device, desc, SharedMemory.allocate(size_bytes))

    @classmethod
    def with_size(cls, device: Device, desc: TensorDesc, size_bytes: int) -> Self:
        """Create a tensor with `size_bytes` of memory, for a desc with open dimensions or shapes that vary.

        Returns:
            The tensor.

        Raises:
            InvalidParameter: `size_bytes` is smaller than the desc's size.
            OutOfMemory: The size is above 1 GiB, or there is no memory.
            UnavailableDevice: The daemon has died.
        """
        require_device_and_desc(device, desc)
        _require_room(desc, checked_size(size_bytes))
        device._session()
        return cls._over(device, desc, SharedMemory.allocate(size_bytes))

    @classmethod
    def from_fd(cls, device: Device, desc: TensorDesc, fd: int, size_bytes: int, offset: int = 0) -> Self:
        """Create a tensor over the bytes [offset, size_bytes) of a mappable file, such as another tensor's memory.

        If another process shortens the file later, access to the tensor ends this process with SIGBUS. So take
        descriptors only from processes you trust, or sealed against shrinking (F_SEAL_SHRINK), as those of tensors are.

        Args:
            device: The device.
            desc: Data type and shape of the elements.
            fd: The file descriptor. The tensor duplicates it, and the caller may close it.
            size_bytes: End of the tensor in the file.
            offset: Start of the tensor in the file.

        Returns:
            The tensor.

        Raises:
            InvalidParameter: The file is too short, or can't be mapped for reading and writing.
            UnavailableDevice: The daemon has died.
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
        """Description of the tensor. Changes of it apply to the next run."""
        return self._desc

    @property
    def fd(self) -> int:
        """File descriptor of the memory. Duplicate it to use it longer than the tensor."""
        return self._memory.fd

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole memory, including those before `offset`."""
        return self._memory.size_bytes

    @property
    def offset(self) -> int:
        """Offset of the tensor in its memory."""
        return self._memory.offset

    @property
    def data_buffer(self) -> memoryview:
        """Writable view of the bytes [offset, size_bytes), which keeps the memory alive."""
        return self._memory.view

    def numpy(self) -> NDArray[Any]:
        """Return a writable array over the memory, in the shape of the desc.

        Returns:
            A view, not a copy.

        Raises:
            DynamicShape: The desc has open dimensions.
            OperationFailed: The memory is smaller than the desc says.
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
    except DynamicShape:  # Each run checks its own dimensions.
        return
    if size_bytes < least:
        raise InvalidParameter(f"the tensor has {size_bytes} bytes; {desc} needs {least}")
