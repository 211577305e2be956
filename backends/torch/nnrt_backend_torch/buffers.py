"""Buffers of clients in the memory of the device."""

import torch

from nnrt_backend_torch.errors import typed
from nnrt_backend_torch.kernels.kernel import DTYPES
from nnrt_backend_torch.stream import Stream
from nnrt_hdi.device_buffers import DeviceBuffer, DeviceRegion
from nnrt_hdi.tensor import data_type_of


class TorchBuffer(DeviceBuffer):
    """Buffer that is a tensor of bytes on the device."""

    def __init__(self, size_bytes: int, device: torch.device, stream: Stream) -> None:
        """Allocate a buffer of zeros; raise OutOfMemory if the device has no room."""
        self.size_bytes = size_bytes
        self._stream = stream
        try:
            with stream.current():
                self._bytes = torch.zeros(size_bytes, dtype=torch.uint8, device=device)
        except RuntimeError as error:
            raise typed(error) from error

    def read(self, offset: int, target: memoryview) -> None:
        with self._stream.current():
            torch.frombuffer(target, dtype=torch.uint8).copy_(self._bytes[offset : offset + target.nbytes])

    def write(self, offset: int, data: memoryview) -> None:
        # Of a bytearray, because torch warns about memory that is read-only.
        source = torch.frombuffer(bytearray(data) if data.readonly else data, dtype=torch.uint8)
        with self._stream.current():
            self._bytes[offset : offset + data.nbytes].copy_(source)

    def close(self) -> None:
        del self._bytes

    def tensor_at(self, region: DeviceRegion) -> torch.Tensor:
        """Return the tensor of a region of this buffer, which shares its memory."""
        elements = self._bytes[region.offset : region.offset + region.nbytes]
        return elements.view(DTYPES[data_type_of(region.dtype)]).reshape(region.shape)


def tensor_in(region: DeviceRegion) -> torch.Tensor:
    """Return the tensor of a region, which shares the memory of its buffer."""
    buffer = region.buffer
    assert isinstance(buffer, TorchBuffer)
    return buffer.tensor_at(region)
