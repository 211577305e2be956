"""Values that runs read and write in place, on this host or on a device."""

import ctypes
import itertools
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.onnxruntime.connections import Connection, connect
from nnrt_client.onnxruntime.element_types import element_dtype, onnx_number, type_text
from nnrt_client.onnxruntime.errors import BadBinding, NotSupported, WrongType
from nnrt_client.onnxruntime.value_memory import ValueMemory, allocate_resident, closing_on_error
from nnrt_client.run.arrays import view_array
from nnrt_client.session.device import Device

HOST = "cpu"
DEVICE = "nnrt"

# Numbers that `data_ptr` returns for values on a device. They are above all addresses of a process.
_handles = itertools.count(1 << 62)
_by_handle: "weakref.WeakValueDictionary[int, OrtValue]" = weakref.WeakValueDictionary()


class OrtValue:
    """Tensor in an array, in memory shared with a daemon on this host, or on a device.

    Made by its `ortvalue_...` methods, by `from_dlpack`, and by sessions.
    """

    def __init__(self, memory: ValueMemory) -> None:
        self._memory = memory
        self._handle = 0

    # ---- construction

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: NDArray[Any], device_type: str = HOST, device_id: int = 0) -> "OrtValue":
        """Make a value of an array.

        Args:
            numpy_obj: array. A contiguous one is not copied if the value is on this host.
            device_type: `cpu`, `nnrt` or an address, as for `ortvalue_from_shape_and_type`.
            device_id: as for `ortvalue_from_shape_and_type`.

        Returns:
            The value.

        Raises:
            WrongType: it is no array, or no device takes its element type.
            BadBinding: there is no such device.
        """
        if not isinstance(numpy_obj, np.ndarray):
            raise WrongType(f"it is {type(numpy_obj).__name__}; give a numpy array")
        if device_type == HOST:
            return OrtValue(ValueMemory(np.ascontiguousarray(numpy_obj)))
        value = OrtValue.ortvalue_from_shape_and_type(numpy_obj.shape, numpy_obj.dtype, device_type, device_id)
        value.update_inplace(numpy_obj)
        return value

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: NDArray[Any], onnx_element_type: int) -> "OrtValue":
        """Make a value of the bytes of an array, read as elements of the type with this number in ONNX."""
        return OrtValue(ValueMemory(np.ascontiguousarray(data).view(element_dtype(onnx_element_type))))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = HOST, device_id: int = 0
    ) -> "OrtValue":
        """Allocate a value.

        Args:
            shape: dimensions of the value.
            element_type: numpy type, its name, or ONNX's number of the type.
            device_type: `cpu` for this host, `nnrt` for a device of NNRT_DEVICES, or the address of a device.
            device_id: index of the device for `nnrt`. 0 means the device of the first session that uses the value.

        Returns:
            The value.

        Raises:
            WrongType: no device takes the element type.
            BadBinding: there is no such device.
        """
        dtype = element_dtype(element_type)
        if device_type == HOST:
            return OrtValue(ValueMemory.on_host(tuple(shape), dtype))
        if device_type != DEVICE and ":" not in device_type:
            raise BadBinding(
                f"Unsupported device type: {device_type}; use {HOST!r}, {DEVICE!r} or the device's address"
            )
        if device_type == DEVICE and not device_id:
            return OrtValue(ValueMemory(np.zeros(tuple(shape), dtype), awaits_session=True))
        return _allocate_on(device_type if ":" in device_type else None, device_id, tuple(shape), dtype)

    @staticmethod
    def from_dlpack(data: Any) -> "OrtValue":
        """Make a value over the memory of an object with DLPack or an array interface, without a copy."""
        if isinstance(data, OrtValue):
            data = data._memory.host_array("from_dlpack")
        if type(data).__name__ == "PyCapsule":
            data = _Capsule(data)
        array = np.from_dlpack(data) if isinstance(data, _Capsule) else view_array(data)
        if array is None:
            raise WrongType(f"it is {type(data).__name__}; give what has __dlpack__")
        return OrtValue(ValueMemory(array))

    # ---- properties

    def shape(self) -> list[int]:
        """Return the dimensions."""
        return list(self._memory.shape)

    def data_type(self) -> str:
        """Return the type in ONNX Runtime's notation, such as "tensor(float)"."""
        return type_text(self._memory.dtype)

    def element_type(self) -> int:
        """Return ONNX's number of the element type."""
        return onnx_number(self._memory.dtype)

    def device_name(self) -> str:
        """Return `nnrt` for a value on a device, else `cpu`."""
        return DEVICE if self._memory.is_remote else HOST

    def tensor_size_in_bytes(self) -> int:
        """Return the size of the elements in bytes."""
        return int(np.prod(self.shape(), dtype=np.int64)) * self._memory.dtype.itemsize

    def has_value(self) -> bool:
        """Return True: optional values are not supported."""
        return True

    def is_tensor(self) -> bool:
        """Return True: only tensors are supported."""
        return True

    def is_sparse_tensor(self) -> bool:
        """Return False: sparse tensors are not supported."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Return False: sequences are not supported."""
        return False

    def data_ptr(self) -> int:
        """Return the address of the elements, or, for a value on a device, a number that bindings take instead."""
        if not self._memory.is_remote:
            return int(self._memory.host_array("data_ptr").ctypes.data)
        if not self._handle:
            self._handle = next(_handles)
            _by_handle[self._handle] = self
        return self._handle

    # ---- elements

    def numpy(self) -> NDArray[Any]:
        """Return the elements without a copy, or a copy of elements on a device."""
        return self._memory.numpy()

    def update_inplace(self, np_arr: NDArray[Any]) -> None:
        """Overwrite the elements. Raise BadBinding unless the array has the same type and as many elements."""
        self._memory.write(np.asarray(np_arr))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **options: Any) -> Any:
        return self._memory.host_array("__dlpack__").__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._memory.host_array("__dlpack_device__").__dlpack_device__()
        return int(kind), int(index)


class _Capsule:
    """Wrapper of a DLPack capsule with `__dlpack__`, because numpy takes no bare capsules."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def value_of(name: str, result: Any) -> OrtValue:
    """Return an output of a run as a value on this host. Raise NotSupported if it is no tensor."""
    if not isinstance(result, np.ndarray):
        raise NotSupported(f"output {name!r} is no tensor, and values are tensors here; take it from run()")
    return OrtValue(ValueMemory(result))


def find_value(pointer: int, device_type: str, element_type: Any, shape: Sequence[int], device_id: int = 0) -> OrtValue:
    """Return a value over memory of this host, or the device value with this `data_ptr`.

    Memory of this host must stay valid as long as the value.

    Returns:
        The value.

    Raises:
        BadBinding: there is no such device value.
    """
    dtype = element_dtype(element_type)
    if device_type != HOST:
        value = _by_handle.get(pointer)
        if value is None or value._memory.dtype != dtype:
            raise BadBinding(f"{pointer} is no data_ptr() of a value {dtype} on a device")
        return value
    size_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory: Any = (ctypes.c_char * size_bytes).from_address(pointer)
    return OrtValue(ValueMemory(np.ndarray(tuple(shape), dtype, memory)))


def allocate_on_device(connection: Connection, device: Device, shape: Sequence[int], element_type: Any) -> OrtValue:
    """Allocate a value on a device. The value keeps the connection open."""
    memory = ValueMemory()
    memory.move(connection, device, tuple(shape), element_dtype(element_type))
    return OrtValue(memory)


def _allocate_on(address: str | None, device_id: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> OrtValue:
    memory, made = ValueMemory(), ExitStack()
    connection, close = connect(address, memory, made.close)
    with closing_on_error(close):
        if address is None:
            devices = connection.devices()
            if not 0 <= device_id < len(devices):
                raise BadBinding(f"device_id is {device_id}; {len(devices)} devices of NNRT_DEVICES answer")
            device = devices[device_id]
        else:
            device = connection.device(address)
        memory.elements = made.enter_context(allocate_resident(device, dtype, shape))
    return OrtValue(memory)
