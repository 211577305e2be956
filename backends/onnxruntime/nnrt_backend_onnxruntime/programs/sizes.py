"""How large a program's tensors get, known from shapes before anything is computed."""

from collections.abc import Iterable, Mapping, Sequence

from nnrt_backend_onnxruntime.programs.foresight import Foresight
from nnrt_backend_onnxruntime.programs.shapes import Sized
from nnrt_backend_onnxruntime.programs.skeleton import quoted
from nnrt_hdi.errors import OutOfMemory
from nnrt_hdi.tensor import Shape


class Sizes:
    """The tensors of a model, and how large they get with the shapes of its inputs."""

    def __init__(self, known: Foresight, max_tensor_bytes: int) -> None:
        """Raises OutOfMemory for a tensor that is too large whatever the inputs are."""
        self._max_tensor_bytes = max_tensor_bytes
        self._inputs = [entry.dims for entry in known.inputs]
        self._require_fit(known.tensors, {})
        decided = {dim for dims in self._inputs for dim in dims if isinstance(dim, str)}
        distinct = {(entry.data_type, entry.dims): entry for entry in known.tensors}
        names = [{dim for dim in entry.dims if isinstance(dim, str)} for entry in distinct.values()]
        self._deciding = [
            entry for entry, needed in zip(distinct.values(), names, strict=True) if needed and needed <= decided
        ]

    @property
    def depend_on_inputs(self) -> bool:
        """True where a run must be asked about."""
        return bool(self._deciding)

    def require_run_fits(self, shapes: Sequence[Shape]) -> None:
        """Raise OutOfMemory for inputs from which too large a tensor follows."""
        known = {
            dim: length
            for dims, shape in zip(self._inputs, shapes, strict=True)
            for dim, length in zip(dims, shape, strict=True)
            if isinstance(dim, str)
        }
        self._require_fit(self._deciding, known)

    def _require_fit(self, tensors: Iterable[Sized], known: Mapping[str, int]) -> None:
        for entry in tensors:
            size_bytes = entry.size_bytes(known)
            if size_bytes is not None and size_bytes > self._max_tensor_bytes:
                raise OutOfMemory(
                    f"it needs {size_bytes} bytes; at most {self._max_tensor_bytes} are allowed",
                    place=f"tensor {quoted(entry.name)}",
                )
