"""Sizes of a program's tensors, known from shapes before anything is computed."""

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping

from nnrt_backend_onnxruntime.programs.analysis import Analysis
from nnrt_backend_onnxruntime.programs.shapes import SizedTensor
from nnrt_backend_onnxruntime.programs.skeleton import quoted
from nnrt_hdi.errors import OutOfMemory, too_much
from nnrt_hdi.tensor import Shape

# The number of the latest fitting shapes that are remembered.
_MOST_SHAPES = 512


class Sizes:
    """Tensors of a model, and their sizes for given shapes of the inputs."""

    def __init__(self, known: Analysis, max_tensor_bytes: int) -> None:
        """Prepare the checks. Raises OutOfMemory for a tensor that is too large whatever the inputs are."""
        self._max_tensor_bytes = max_tensor_bytes
        # Multiply-adds by the shapes of inputs.
        self._fitting: OrderedDict[tuple[Shape, ...], int] = OrderedDict()
        # Powers of two with which all tensors fit.
        self._fitting_lengths: dict[str, int] = {}
        self._inputs = [entry.dims for entry in known.inputs]
        self._require_fit(known.tensors, {})
        # Multiply-adds as multiples of products of open dimensions, of which few are distinct. An unknown one counts 0.
        self._products: Counter[tuple[str, ...]] = Counter()
        for factors in known.products:
            fixed = math.prod(dim or 0 for dim in factors if not isinstance(dim, str))
            self._products[tuple(sorted(dim for dim in factors if isinstance(dim, str)))] += fixed
        decided = {dim for dims in self._inputs for dim in dims if isinstance(dim, str)}
        distinct = {(entry.data_type, entry.dims): entry for entry in known.tensors}
        names = [{dim for dim in entry.dims if isinstance(dim, str)} for entry in distinct.values()]
        self._deciding = [
            entry for entry, needed in zip(distinct.values(), names, strict=True) if needed and needed <= decided
        ]

    def require_run_fits(self, shapes: tuple[Shape, ...]) -> int:
        """Return the multiply-adds of a run with inputs of these shapes, as far as they are known.

        Raises OutOfMemory for shapes with which a tensor would be too large.
        """
        if not self._deciding and not self._products:
            return 0
        if (multiply_adds := self._fitting.get(shapes)) is not None:
            return multiply_adds
        known = {
            dim: length
            for dims, shape in zip(self._inputs, shapes, strict=True)
            for dim, length in zip(dims, shape, strict=True)
            if isinstance(dim, str)
        }
        # Sizes grow with the lengths. So of many runs whose lengths differ a little only the first is computed.
        rounded = {dim: 1 << max(length - 1, 0).bit_length() for dim, length in known.items()}
        if rounded != self._fitting_lengths:
            try:
                self._require_fit(self._deciding, rounded)
                self._fitting_lengths = rounded
            except OutOfMemory:
                self._require_fit(self._deciding, known)
        self._fitting[shapes] = multiply_adds = sum(
            [count * math.prod([known.get(dim, 0) for dim in dims]) for dims, count in self._products.items()]
        )
        while len(self._fitting) > _MOST_SHAPES:
            self._fitting.popitem(last=False)
        return multiply_adds

    def _require_fit(self, tensors: Iterable[SizedTensor], known: Mapping[str, int]) -> None:
        for entry in tensors:
            size_bytes = entry.size_bytes(known)
            if size_bytes is not None and size_bytes > self._max_tensor_bytes:
                raise too_much(
                    f"it needs {size_bytes} bytes", self._max_tensor_bytes, place=f"tensor {quoted(entry.name)}"
                )
