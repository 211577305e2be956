"""Values that runs read and write where they are: on this host, or on a device."""

import ctypes
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.enums import DataType
from nnrt_client.model_session.arrays import viewed_array
from nnrt_client.onnxruntime.connections import Connection, use
from nnrt_client.onnxruntime.element_types import element_dtype, onnx_number, type_text
from nnrt_client.onnxruntime.errors import BadBinding, NotSupported, WrongType, translated
from nnrt_client.session.device import Device
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_client.tensors.tensor import Tensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import NnrtError, OutOfMemory
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.tensor import data_type_of

HOST = "cpu"
DEVICE = "nnrt"

# What `data_ptr` gives for values on a device, where nothing of this process has an address.
_handles = itertools.count(1 << 62)
_by_handle: "weakref.WeakValueDictionary[int, OrtValue]" = weakref.WeakValueDictionary()


class OrtValue:
    """A tensor: on this host, as an array, or in memory that a daemon on this host has too; or on a device.

    Made by its `ortvalue_...` methods, by `from_dlpack`, and by sessions.
    """

    def __init__(
        self, array: NDArray[Any] | None = None, *, region: SharedMemory | None = None, awaits_session: bool = False
    ) -> None:
        """Over an array, which may be one of shared memory, or wait here for the first session that uses the value, to
        whose device it moves then."""
        # Where its elements are. Another thread may move them at any time: read this once.
        self._elements: NDArray[Any] | ResidentTensor = np.empty(0) if array is None else array
        self._region = region
        self._awaits_session = awaits_session
        self._is_written = False
        self._moves = threading.Lock()
        self._tensor: Tensor | None = None
        # The session that the memory is gone with.
        self._keeper: object = None
        self._handle = 0

    # ---- making them

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: NDArray[Any], device_type: str = HOST, device_id: int = 0) -> "OrtValue":
        """The array itself, or a copy of it on a device: see `ortvalue_from_shape_and_type`."""
        if not isinstance(numpy_obj, np.ndarray):
            raise WrongType(f"it is {type(numpy_obj).__name__}; give a numpy array")
        if device_type == HOST:
            return OrtValue(np.ascontiguousarray(numpy_obj))
        value = OrtValue.ortvalue_from_shape_and_type(numpy_obj.shape, numpy_obj.dtype, device_type, device_id)
        value.update_inplace(numpy_obj)
        return value

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: NDArray[Any], onnx_element_type: int) -> "OrtValue":
        """The array itself, whose bytes are elements of the type with this number in ONNX."""
        return OrtValue(np.ascontiguousarray(data).view(element_dtype(onnx_element_type)))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = HOST, device_id: int = 0
    ) -> "OrtValue":
        """A value with room for a shape: on `cpu`; on `nnrt`, the device of the first session that uses it, or with a
        `device_id` above 0 this one of NNRT_DEVICES; or at the address of a device."""
        dtype = element_dtype(element_type)
        if device_type == HOST:
            return _on_host(tuple(shape), dtype)
        if device_type != DEVICE and ":" not in device_type:
            raise BadBinding(
                f"Unsupported device type: {device_type}; use {HOST!r}, {DEVICE!r} or the device's address"
            )
        if device_type == DEVICE and not device_id:
            return OrtValue(np.zeros(tuple(shape), dtype), awaits_session=True)
        return _on_device_of(device_type if ":" in device_type else None, device_id, tuple(shape), dtype)

    @staticmethod
    def from_dlpack(data: Any) -> "OrtValue":
        """The memory of what has DLPack or an array, without a copy."""
        if isinstance(data, OrtValue):
            data = data._require_host("from_dlpack")
        if type(data).__name__ == "PyCapsule":
            data = _Capsule(data)
        array = np.from_dlpack(data) if isinstance(data, _Capsule) else viewed_array(data)
        if array is None:
            raise WrongType(f"it is {type(data).__name__}; give what has __dlpack__")
        return OrtValue(array)

    @classmethod
    def _of_resident(cls, resident: ResidentTensor, keeper: object) -> "OrtValue":
        value = cls()
        value._elements, value._keeper = resident, keeper
        return value

    # ---- what they are

    @property
    def _is_remote(self) -> bool:
        return self._awaits_session or isinstance(self._elements, ResidentTensor)

    def shape(self) -> list[int]:
        """Its dimensions."""
        elements = self._elements
        return list((elements.desc.shape or ()) if isinstance(elements, ResidentTensor) else elements.shape)

    @property
    def _dtype(self) -> np.dtype[Any]:
        elements = self._elements
        if isinstance(elements, ResidentTensor):
            return elements.desc._to_spec().numpy_dtype
        return elements.dtype

    def data_type(self) -> str:
        """Its type as text: tensor(float)."""
        return type_text(self._dtype)

    def element_type(self) -> int:
        """The number of its elements' type in ONNX."""
        return onnx_number(self._dtype)

    def device_name(self) -> str:
        """`cpu`, or `nnrt` for what is on a device."""
        return DEVICE if self._is_remote else HOST

    def tensor_size_in_bytes(self) -> int:
        """Length of its elements."""
        return int(np.prod(self.shape(), dtype=np.int64)) * self._dtype.itemsize

    def has_value(self) -> bool:
        """True: there are no optional values here."""
        return True

    def is_tensor(self) -> bool:
        """True: there is nothing else."""
        return True

    def is_sparse_tensor(self) -> bool:
        """False: there are none."""
        return False

    def is_tensor_sequence(self) -> bool:
        """False: there are none."""
        return False

    def data_ptr(self) -> int:
        """The address of its elements; for one on a device a number that `bind_input` and `bind_output` know it by."""
        if not self._is_remote:
            return int(self._host.ctypes.data)
        if not self._handle:
            self._handle = next(_handles)
            _by_handle[self._handle] = self
        return self._handle

    # ---- its elements

    def numpy(self) -> NDArray[Any]:
        """The elements themselves; of a value on a device a copy."""
        elements = self._elements
        if not isinstance(elements, ResidentTensor):
            return elements.copy() if self._awaits_session else elements
        try:
            return elements.numpy()
        except NnrtError as error:
            raise translated(error) from error

    def update_inplace(self, np_arr: NDArray[Any]) -> None:
        """Write other elements: of the same type, and as many."""
        array = np.asarray(np_arr)
        if array.dtype != self._dtype or array.size != int(np.prod(self.shape(), dtype=np.int64)):
            raise BadBinding(
                "The input size of numpy arrays does not match the size of the OrtValue."
                f" It is {array.dtype}{list(array.shape)}; the value is {self._dtype}{self.shape()}"
            )
        with self._moves:  # What is written here while the elements are moved would be lost.
            elements = self._elements
            if not isinstance(elements, ResidentTensor):
                elements[...] = array.reshape(elements.shape)
                self._is_written = True
                return
        try:
            elements.write(array.reshape(self.shape()))
        except NnrtError as error:
            raise translated(error) from error

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **options: Any) -> Any:
        return self._require_host("__dlpack__").__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._require_host("__dlpack_device__").__dlpack_device__()
        return int(kind), int(index)

    # ---- for runs

    def _readable(self, connection: Connection, device: Device) -> Any:
        """What a run on a device reads."""
        return self._place(connection, device, with_elements=True) or self._host

    def _writable_place(self, connection: Connection, device: Device) -> "Tensor | ResidentTensor | None":
        """What a run on a device writes to; None where its result is to be copied."""
        return self._place(connection, device, with_elements=self._is_written)

    def _place(
        self, connection: Connection, device: Device, *, with_elements: bool
    ) -> "Tensor | ResidentTensor | None":
        """Move the value to the device if it waits for one, and give what runs there use; None for an array."""
        if self._awaits_session:
            # Held while the elements are sent: only users of this value wait, who all need it on the device.
            with self._moves:
                if self._awaits_session:
                    array = self._host
                    self._move(connection, device, array.shape, array.dtype, array if with_elements else None)
                    self._awaits_session = False
        elements = self._elements
        return elements if isinstance(elements, ResidentTensor) else self._shared(device)

    def _move(
        self,
        connection: Connection,
        device: Device,
        shape: Sequence[int],
        element_type: Any,
        elements: NDArray[Any] | None = None,
    ) -> None:
        """Make room on a device and write the elements there. The connection stays while the value does."""
        made = ExitStack()
        with _undone_by(connection.used_by(self, made.close)):
            tensor = made.enter_context(resident(device, element_dtype(element_type), shape))
            if elements is not None:
                tensor.write(elements)
            self._elements = tensor

    def _take(self, result: Any) -> None:
        """Have the result of a run: an array to copy, or the memory of the value, which holds it."""
        if isinstance(result, ResidentTensor):
            return
        shape = result.desc.shape or () if isinstance(result, Tensor) else result.shape
        if shape != self._host.shape:
            raise BadBinding(f"the output is {list(shape)}; the value bound to it is {self.shape()}")
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
        elements = self._elements
        assert isinstance(elements, np.ndarray)
        return elements

    def _require_host(self, call: str) -> NDArray[Any]:
        if self._is_remote:
            raise NotSupported(f"{call}: the value is on a device, where nobody else reads; take numpy()")
        return self._host


class _Capsule:
    """What DLPack calls a capsule, as numpy takes it."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def value_at(pointer: int, device_type: str, element_type: Any, shape: Sequence[int], device_id: int = 0) -> OrtValue:
    """The value at an address on this host, which stays its owner's, or that `data_ptr` gave for one on a device."""
    dtype = element_dtype(element_type)
    if device_type != HOST:
        value = _by_handle.get(pointer)
        if value is None or value._dtype != dtype:
            raise BadBinding(f"{pointer} is no data_ptr() of a value {dtype} on a device")
        return value
    size_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory: Any = (ctypes.c_char * size_bytes).from_address(pointer)
    return OrtValue(np.ndarray(tuple(shape), dtype, memory))


def resident(
    device: Device, dtype: np.dtype[Any], shape: Sequence[int], capacity_bytes: int | None = None
) -> ResidentTensor:
    """Memory on a device for a value of this shape, or of so many bytes where dimensions vary (-1)."""
    if capacity_bytes is None:
        capacity_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return ResidentTensor(device, _desc(dtype, shape), max(capacity_bytes, 1))


def placed(connection: Connection, device: Device, shape: Sequence[int], element_type: Any) -> OrtValue:
    """A value on a device, whose connection stays while the value does."""
    value = OrtValue()
    value._move(connection, device, shape, element_type)
    return value


@contextmanager
def _undone_by(close: Callable[[], object]) -> Iterator[None]:
    """Close what has been made where the rest fails, with the error that ONNX Runtime has for it."""
    try:
        yield
    except BaseException as error:
        close()
        if isinstance(error, NnrtError):
            raise translated(error) from error
        raise


def _desc(dtype: np.dtype[Any], shape: Sequence[int]) -> TensorDesc:
    desc = TensorDesc(DataType[data_type_of(dtype).name])
    desc._take_shape(tuple(shape))
    return desc


def _on_host(shape: tuple[int, ...], dtype: np.dtype[Any]) -> OrtValue:
    size_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if size_bytes:
        try:
            region = SharedMemory.allocate(size_bytes, "nnrt-value")
            return OrtValue(region.array(dtype, shape), region=region)
        except OutOfMemory:  # More than one region can have.
            pass
    return OrtValue(np.zeros(shape, dtype))


def _on_device_of(address: str | None, device_id: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> OrtValue:
    value, made = OrtValue(), ExitStack()
    connection, close = use(address, value, made.close)
    with _undone_by(close):
        if address is None:
            devices = connection.devices()
            if not 0 <= device_id < len(devices):
                raise BadBinding(f"device_id is {device_id}; {len(devices)} devices of NNRT_DEVICES answer")
            device = devices[device_id]
        else:
            device = connection.device(address)
        value._elements = made.enter_context(resident(device, dtype, shape))
    return value
