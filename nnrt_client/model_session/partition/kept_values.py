"""Memory for the values that one part passes to another, on the device or shared with it; later runs reuse it."""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from nnrt_client.session.fork import LockOwner
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_client.tensors.tensor import Tensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import OutOfMemory
from nnrt_hdi.tensor import Shape, TensorSpec

TensorT = TypeVar("TensorT", Tensor, ResidentTensor)


class KeptValues(LockOwner, Generic[TensorT]):
    """Pool of tensors for one value that parts pass on; each run under way uses one of them."""

    def __init__(
        self, spec: TensorSpec, dims: Sequence[int | str | None], make: Callable[[TensorDesc, int], TensorT]
    ) -> None:
        """Describe the value; `make` makes a tensor from a desc and a capacity in bytes."""
        self.spec = spec
        self._dims = dims
        self._make: Callable[[TensorDesc, int], TensorT] = make
        super().__init__()
        self._free: list[TensorT] = []
        self._is_open = True

    def _make_locks(self) -> None:
        self._lock = threading.RLock()

    def take(self, sizes: Mapping[str, int]) -> tuple[TensorT, Shape] | None:
        """Return a tensor with room for the value, and the value's shape if named dimensions have these sizes.

        Return None if the sizes don't determine the shape, or if memory is exhausted.
        """
        known = [sizes.get(dim, -1) if isinstance(dim, str) else dim for dim in self._dims]
        shape = tuple(-1 if dim is None else dim for dim in known)
        if min(shape, default=1) <= 0:
            return None
        size_bytes = math.prod(shape) * self.spec.item_size
        with self._lock:
            for tensor in self._free:
                if tensor._memory.room_bytes >= size_bytes:
                    self._free.remove(tensor)
                    return tensor, shape
            small = self._free.pop() if self._free else None
        if small is not None:
            small.close()
        try:
            return self._make(TensorDesc._from_spec(self.spec), size_bytes), shape
        except OutOfMemory:  # Then the messages of the runs carry the value.
            return None

    def give_back(self, tensor: TensorT) -> None:
        """Take back a tensor that no run uses any more."""
        with self._lock:
            if self._is_open:
                self._free.append(tensor)
                return
        tensor.close()

    def close(self) -> None:
        """Free the tensors; those in use are freed when they come back."""
        with self._lock:
            self._is_open = False
            free, self._free = self._free, []
        for tensor in free:
            tensor.close()
