"""Values that runs read and write where they are: on this host, or on a device."""

import ctypes
import itertools
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.model_session.arrays import viewed_array
from nnrt_client.onnxruntime.connections import Connection, use
from nnrt_client.onnxruntime.element_types import element_dtype, onnx_number, type_text
from nnrt_client.onnxruntime.errors import BadBinding, WrongType
from nnrt_client.onnxruntime.value_memory import ValueMemory, resident, undone_by
from nnrt_client.session.device import Device

HOST = "cpu"
DEVICE = "nnrt"

# What `data_ptr` gives for values on a device, where nothing of this process has an address.
_handles = itertools.count(1 << 62)
_by_handle: "weakref.WeakValueDictionary[int, OrtValue]" = weakref.WeakValueDictionary()


class OrtValue:
    """A tensor: on this host, as an array, or in memory that a daemon on this host has too; or on a device.

    Made by its `ortvalue_...` methods, by `from_dlpack`, and by sessions.
    """

    def __init__(self, memory: ValueMemory) -> None:
        self._memory = memory
        self._handle = 0

    # ---- making them

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: NDArray[Any], device_type: str = HOST, device_id: int = 0) -> "OrtValue":
        """The array itself, or a copy of it on a device: see `ortvalue_from_shape_and_type`."""
        if not isinstance(numpy_obj, np.ndarray):
            raise WrongType(f"it is {type(numpy_obj).__name__}; give a numpy array")
        if device_type == HOST:
            return OrtValue(ValueMemory(np.ascontiguousarray(numpy_obj)))
        value = OrtValue.ortvalue_from_shape_and_type(numpy_obj.shape, numpy_obj.dtype, device_type, device_id)
        value.update_inplace(numpy_obj)
        return value

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: NDArray[Any], onnx_element_type: int) -> "OrtValue":
        """The array itself, whose bytes are elements of the type with this number in ONNX."""
        return OrtValue(ValueMemory(np.ascontiguousarray(data).view(element_dtype(onnx_element_type))))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = HOST, device_id: int = 0
    ) -> "OrtValue":
        """A value with room for a shape: on `cpu`; on `nnrt`, the device of the first session that uses it, or with a
        `device_id` above 0 this one of NNRT_DEVICES; or at the address of a device."""
        dtype = element_dtype(element_type)
        if device_type == HOST:
            return OrtValue(ValueMemory.on_host(tuple(shape), dtype))
        if device_type != DEVICE and ":" not in device_type:
            raise BadBinding(
                f"Unsupported device type: {device_type}; use {HOST!r}, {DEVICE!r} or the device's address"
            )
        if device_type == DEVICE and not device_id:
            return OrtValue(ValueMemory(np.zeros(tuple(shape), dtype), awaits_session=True))
        return _on_device_of(device_type if ":" in device_type else None, device_id, tuple(shape), dtype)

    @staticmethod
    def from_dlpack(data: Any) -> "OrtValue":
        """The memory of what has DLPack or an array, without a copy."""
        if isinstance(data, OrtValue):
            data = data._memory.host_array("from_dlpack")
        if type(data).__name__ == "PyCapsule":
            data = _Capsule(data)
        array = np.from_dlpack(data) if isinstance(data, _Capsule) else viewed_array(data)
        if array is None:
            raise WrongType(f"it is {type(data).__name__}; give what has __dlpack__")
        return OrtValue(ValueMemory(array))

    # ---- what they are

    def shape(self) -> list[int]:
        """Its dimensions."""
        return list(self._memory.shape)

    def data_type(self) -> str:
        """Its type as text: tensor(float)."""
        return type_text(self._memory.dtype)

    def element_type(self) -> int:
        """The number of its elements' type in ONNX."""
        return onnx_number(self._memory.dtype)

    def device_name(self) -> str:
        """`cpu`, or `nnrt` for what is on a device."""
        return DEVICE if self._memory.is_remote else HOST

    def tensor_size_in_bytes(self) -> int:
        """Length of its elements."""
        return int(np.prod(self.shape(), dtype=np.int64)) * self._memory.dtype.itemsize

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
        if not self._memory.is_remote:
            return int(self._memory.host_array("data_ptr").ctypes.data)
        if not self._handle:
            self._handle = next(_handles)
            _by_handle[self._handle] = self
        return self._handle

    # ---- its elements

    def numpy(self) -> NDArray[Any]:
        """The elements themselves; of a value on a device a copy."""
        return self._memory.numpy()

    def update_inplace(self, np_arr: NDArray[Any]) -> None:
        """Write other elements: of the same type, and as many."""
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
        if value is None or value._memory.dtype != dtype:
            raise BadBinding(f"{pointer} is no data_ptr() of a value {dtype} on a device")
        return value
    size_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory: Any = (ctypes.c_char * size_bytes).from_address(pointer)
    return OrtValue(ValueMemory(np.ndarray(tuple(shape), dtype, memory)))


def placed(connection: Connection, device: Device, shape: Sequence[int], element_type: Any) -> OrtValue:
    """A value on a device, whose connection stays while the value does."""
    memory = ValueMemory()
    memory.move(connection, device, tuple(shape), element_dtype(element_type))
    return OrtValue(memory)


def _on_device_of(address: str | None, device_id: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> OrtValue:
    memory, made = ValueMemory(), ExitStack()
    connection, close = use(address, memory, made.close)
    with undone_by(close):
        if address is None:
            devices = connection.devices()
            if not 0 <= device_id < len(devices):
                raise BadBinding(f"device_id is {device_id}; {len(devices)} devices of NNRT_DEVICES answer")
            device = devices[device_id]
        else:
            device = connection.device(address)
        memory.elements = made.enter_context(resident(device, dtype, shape))
    return OrtValue(memory)
