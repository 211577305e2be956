"""Tensors that stay on the device between runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnrt_client.session.device import Device
from nnrt_client.tensors.device_buffer import DeviceBuffer
from nnrt_client.tensors.run_tensor import RunTensor, require_device_and_desc
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.shared_memory import checked_size
from nnrt_hdi.tensor import flat_bytes


class ResidentTensor(RunTensor[DeviceBuffer]):
    """Input or output of runs in memory of their daemon: nothing of it travels unless it is asked for.

    It serves runs of any model on the same device, as input and as output, in one run as both: states, repeated inputs,
    and what one model gives the next. After a run that failed, what it was to write there is lost. The memory counts in
    the daemon's --session-bytes, and is gone when the daemon dies.

    A context manager.
    """

    def __init__(self, device: Device, desc: TensorDesc, capacity_bytes: int | None = None) -> None:
        """A tensor with room for the desc's size, or for `capacity_bytes` where dimensions are unknown or to vary.

        Raises DynamicShape or InvalidParameter where the desc has no size and no capacity is given, OutOfMemory where
        the daemon has no room, and UnavailableDevice if the device is gone.
        """
        require_device_and_desc(device, desc)
        room_bytes = desc.byte_size() if capacity_bytes is None else checked_size(capacity_bytes)
        spec = desc._to_spec()
        if not spec.is_dynamic and spec.byte_size > room_bytes:
            raise InvalidParameter(f"the capacity is {room_bytes} bytes; {desc} needs {spec.byte_size}")
        self._declared = desc.copy()
        self._take(device, desc, DeviceBuffer(device._session(), room_bytes))

    def __repr__(self) -> str:
        return f"<ResidentTensor {self._desc!r}>"

    @property
    def desc(self) -> TensorDesc:
        """Copy of its description, with the shape of what was written last."""
        return self._desc.copy()

    @property
    def _target_desc(self) -> TensorDesc:
        return self._declared

    @property
    def capacity_bytes(self) -> int:
        """Bytes that the tensor has room for."""
        return self._memory.room_bytes

    def write(self, array: ArrayLike) -> None:
        """Send elements to the device. Raises InvalidParameter for any that are not of the desc, or too many;
        UnavailableDevice, ConnectionFailed or TimedOut where they can't be sent."""
        given, spec = np.asarray(array), self._declared._to_spec()
        if given.dtype != spec.numpy_dtype or not spec.accepts(given.shape):
            raise InvalidParameter(f"it is {given.dtype.name}{list(given.shape)}; the tensor takes {spec}")
        with self._used() as buffer:
            if given.nbytes > buffer.room_bytes:
                raise InvalidParameter(f"it has {given.nbytes} bytes; the tensor has room for {buffer.room_bytes}")
            buffer.write(flat_bytes(np.ascontiguousarray(given)))
            self._take_shape(given.shape)

    def numpy(self) -> NDArray[Any]:
        """A copy of the elements, fetched from the device. Raises OperationFailed where nothing has been written,
        UnavailableDevice, ConnectionFailed or TimedOut where it can't be fetched."""
        with self._used() as buffer:
            buffer.require_written()
            spec = self._desc._to_spec()
            array: NDArray[Any] = np.ndarray(spec.shape, spec.numpy_dtype, buffer.read(spec.byte_size))
            return array

    @contextmanager
    def _used(self) -> Iterator[DeviceBuffer]:
        user = object()
        self._retain(user)
        try:
            yield self._memory
        finally:
            self._release(user)

    def _free(self, memory: DeviceBuffer) -> None:
        memory.release()
