"""Memory of OrtValues: an array, memory shared with a daemon, or memory on a device."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from nnrt_client.enums import DataType
from nnrt_client.onnxruntime.connections import Connection
from nnrt_client.onnxruntime.errors import BadBinding, NotSupported, translate
from nnrt_client.session.device import Device
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_client.tensors.tensor import Tensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import NnrtError, OutOfMemory
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.tensor import Shape, data_type_of


class ValueMemory:
    """Elements of an OrtValue, on this host or on a device."""

    def __init__(
        self,
        elements: NDArray[Any] | ResidentTensor | None = None,
        *,
        region: SharedMemory | None = None,
        awaits_session: bool = False,
        keeper: object = None,
    ) -> None:
        """Take the elements.

        Args:
            elements: array, or memory on a device. Without it the caller calls `move` or sets `elements`.
            region: shared memory of the array.
            awaits_session: the array moves to the device of the first session that uses the value.
            keeper: object that must live as long as the memory on the device.
        """
        # Another thread may move the elements at any time, so each method reads this once.
        self.elements: NDArray[Any] | ResidentTensor = np.empty(0) if elements is None else elements
        self._region = region
        self._awaits_session = awaits_session
        self._keeper = keeper
        self._is_written = False
        self._moves = threading.Lock()
        self._tensor: Tensor | None = None

    @classmethod
    def on_host(cls, shape: Shape, dtype: np.dtype[Any]) -> Self:
        """Allocate memory on this host, shared memory if possible, which a daemon on this host can map."""
        size_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size_bytes:
            try:
                region = SharedMemory.allocate(size_bytes, "nnrt-value")
                return cls(region.array(dtype, shape), region=region)
            except OutOfMemory:  # A region of shared memory has a largest size.
                pass
        return cls(np.zeros(shape, dtype))

    @property
    def is_remote(self) -> bool:
        """True if the elements are on a device, or will move to one."""
        return self._awaits_session or isinstance(self.elements, ResidentTensor)

    @property
    def shape(self) -> Shape:
        """Dimensions of the value."""
        elements = self.elements
        return (elements.desc.shape or ()) if isinstance(elements, ResidentTensor) else elements.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        elements = self.elements
        return elements.desc._to_spec().numpy_dtype if isinstance(elements, ResidentTensor) else elements.dtype

    def numpy(self) -> NDArray[Any]:
        """Return the elements without a copy, or a copy of elements on a device."""
        elements = self.elements
        if not isinstance(elements, ResidentTensor):
            return elements.copy() if self._awaits_session else elements
        try:
            return elements.numpy()
        except NnrtError as error:
            raise translate(error) from error

    def write(self, array: NDArray[Any]) -> None:
        """Overwrite the elements. Raise BadBinding unless the array has the same type and as many elements."""
        if array.dtype != self.dtype or array.size != int(np.prod(self.shape, dtype=np.int64)):
            raise BadBinding(
                "The input size of numpy arrays does not match the size of the OrtValue."
                f" It is {array.dtype}{list(array.shape)}; the value is {self.dtype}{list(self.shape)}"
            )
        with self._moves:  # A write during a move would be lost.
            elements = self.elements
            if not isinstance(elements, ResidentTensor):
                elements[...] = array.reshape(elements.shape)
                self._is_written = True
                return
        try:
            elements.write(array.reshape(self.shape))
        except NnrtError as error:
            raise translate(error) from error

    # ---- for runs

    def readable(self, connection: Connection, device: Device) -> Any:
        """Return the input for a run on the device: a tensor that the daemon can access, else an array."""
        return self._tensor_on(connection, device, with_elements=True) or self._host

    def writable(self, connection: Connection, device: Device) -> "Tensor | ResidentTensor | None":
        """Return the tensor that a run on the device writes to, or None if `copy_result` must copy the result."""
        return self._tensor_on(connection, device, with_elements=self._is_written)

    def _tensor_on(
        self, connection: Connection, device: Device, *, with_elements: bool
    ) -> "Tensor | ResidentTensor | None":
        """Move the value to the device if it awaits one. Return the tensor that runs use, or None for an array."""
        if self._awaits_session:
            # The lock is held while the elements are sent: only users of this value wait, and they need it there.
            with self._moves:
                if self._awaits_session:
                    array = self._host
                    self.move(connection, device, array.shape, array.dtype, array if with_elements else None)
                    self._awaits_session = False
        elements = self.elements
        return elements if isinstance(elements, ResidentTensor) else self._shared(device)

    def move(
        self,
        connection: Connection,
        device: Device,
        shape: Shape,
        dtype: np.dtype[Any],
        elements: NDArray[Any] | None = None,
    ) -> None:
        """Allocate memory on a device and write the elements to it. The value keeps the connection open."""
        made = ExitStack()
        with closing_on_error(connection.add_user(self, made.close)):
            tensor = made.enter_context(allocate_resident(device, dtype, shape))
            if elements is not None:
                tensor.write(elements)
            self.elements = tensor

    def copy_result(self, result: Any) -> None:
        """Copy the result of a run to the value, unless the run has written it. Raise BadBinding if shapes differ."""
        if isinstance(result, ResidentTensor):
            return
        shape = result.desc.shape or () if isinstance(result, Tensor) else result.shape
        if shape != self._host.shape:
            raise BadBinding(f"the output is {list(shape)}; the value bound to it is {list(self.shape)}")
        if not isinstance(result, Tensor):
            self._host[...] = result

    def _shared(self, device: Device) -> Tensor | None:
        if self._region is None:
            return None
        if self._tensor is None:
            self._tensor = Tensor._over(device, _desc(self._host.dtype, self._host.shape), self._region)
        self._tensor._take_shape(self._host.shape)
        return self._tensor

    @property
    def _host(self) -> NDArray[Any]:
        elements = self.elements
        assert isinstance(elements, np.ndarray)
        return elements

    def host_array(self, call: str) -> NDArray[Any]:
        """Return the array on this host. Raise NotSupported, which names the call, for a value on a device."""
        if self.is_remote:
            raise NotSupported(f"{call}: the value is on a device, which only runs can access; take numpy()")
        return self._host


def allocate_resident(
    device: Device, dtype: np.dtype[Any], shape: Sequence[int], capacity_bytes: int | None = None
) -> ResidentTensor:
    """Allocate memory on a device: for a value of this shape, or of `capacity_bytes` if dimensions vary (-1)."""
    if capacity_bytes is None:
        capacity_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return ResidentTensor(device, _desc(dtype, shape), max(capacity_bytes, 1))


@contextmanager
def closing_on_error(close: Callable[[], object]) -> Iterator[None]:
    """Call `close` if the block fails, and translate its error to ONNX Runtime's."""
    try:
        yield
    except BaseException as error:
        close()
        if isinstance(error, NnrtError):
            raise translate(error) from error
        raise


def _desc(dtype: np.dtype[Any], shape: Sequence[int]) -> TensorDesc:
    desc = TensorDesc(DataType[data_type_of(dtype).name])
    desc._take_shape(tuple(shape))
    return desc
