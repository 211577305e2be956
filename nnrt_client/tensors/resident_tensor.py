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
    """Tensor in memory of the device. Only `write` and `numpy` transfer its elements.

    Runs of any model on the same device read and write it; one run may do both. Use it for states, for inputs of many
    runs, and for outputs that are inputs of the next model. A run that fails may destroy the contents of its outputs.
    The memory counts toward the daemon's --session-bytes, and is lost when the daemon dies. The tensor is a context
    manager.
    """

    def __init__(self, device: Device, desc: TensorDesc, capacity_bytes: int | None = None) -> None:
        """Allocate a tensor on the device.

        Args:
            device: The device.
            desc: Data type and shape of the elements.
            capacity_bytes: Bytes to reserve; None: the desc's size. Needed if dimensions are open or will vary.

        Raises:
            DynamicShape: The desc has open dimensions, and `capacity_bytes` is None.
            InvalidParameter: The desc has no shape or data type.
            OutOfMemory: The daemon's limit is reached.
            UnavailableDevice: The daemon has died.
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
        """Copy of the description, with the shape that was last written."""
        return self._desc.copy()

    @property
    def _target_desc(self) -> TensorDesc:
        return self._declared

    @property
    def capacity_bytes(self) -> int:
        """Bytes of the reserved memory."""
        return self._memory.room_bytes

    def write(self, array: ArrayLike) -> None:
        """Send elements to the device.

        Args:
            array: Elements of the desc's data type, in a shape that fits it.

        Raises:
            InvalidParameter: The elements don't fit the desc, or are too many.
            UnavailableDevice: The daemon has died; also ConnectionFailed and TimedOut.
        """
        given, spec = np.asarray(array), self._declared._to_spec()
        if given.dtype != spec.numpy_dtype or not spec.accepts(given.shape):
            raise InvalidParameter(f"it is {given.dtype.name}{list(given.shape)}; the tensor takes {spec}")
        with self._used() as buffer:
            if given.nbytes > buffer.room_bytes:
                raise InvalidParameter(f"it has {given.nbytes} bytes; the tensor has room for {buffer.room_bytes}")
            buffer.write(flat_bytes(np.ascontiguousarray(given)))
            self._take_shape(given.shape)

    def numpy(self) -> NDArray[Any]:
        """Fetch the elements from the device.

        Returns:
            A copy, in the shape that was last written.

        Raises:
            OperationFailed: Nothing was written, or a run that should have written it failed.
            UnavailableDevice: The daemon has died; also ConnectionFailed and TimedOut.
        """
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
