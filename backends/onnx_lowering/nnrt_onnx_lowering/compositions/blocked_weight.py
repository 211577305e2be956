"""Constant matrices of 4 or 8 bits with a scale for each block of a row, as ONNX Runtime's MatMulNBits takes them."""

from dataclasses import dataclass

import numpy as np
from typing_extensions import Self

from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.engine import MICROSOFT, Operator
from nnrt_onnx_lowering.value import FLOAT32, AnyArray, Value

UINT8 = np.dtype(np.uint8)
# The bits of an element that the kernel supports, and the lengths of a block.
BITS = (4, 8)
BLOCK_SIZES = (16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class BlockedWeight:
    """Matrix (steps - points) * scales: steps are [rows, blocks, block size], points and scales [rows, blocks]."""

    bits: int
    steps: AnyArray
    scales: AnyArray
    points: AnyArray

    @classmethod
    def recognize(cls, steps: AnyArray, scales: AnyArray, points: AnyArray) -> Self | None:
        """Return the matrix, or None where the kernel doesn't take it."""
        if steps.dtype != UINT8 or steps.ndim != 3 or not steps.size or steps.shape[2] not in BLOCK_SIZES:
            return None
        of_blocks = (*steps.shape[:2], 1)
        if scales.shape != of_blocks or points.shape not in ((), of_blocks):
            return None
        if not ((points >= 0) & (points <= np.iinfo(UINT8).max) & (points == np.rint(points))).all():
            return None
        narrow = points.astype(UINT8)
        largest = max(int(steps.max()), int(narrow.max()))
        bits = next(bits for bits in BITS if largest < 1 << bits)
        return cls(bits, steps, scales[..., 0].astype(FLOAT32), np.broadcast_to(narrow, of_blocks)[..., 0])

    @property
    def rows(self) -> int:
        return int(self.steps.shape[0])

    @property
    def columns(self) -> int:
        return int(self.steps.shape[1] * self.steps.shape[2])

    @property
    def operator(self) -> Operator:
        """Operator that the engine has to support."""
        points = UINT8 if self._has_points else None
        return Operator("MatMulNBits", (FLOAT32, UINT8, FLOAT32, points), self._sizes, domain=MICROSOFT)

    def product(self, op: Onnx, a: Value) -> Value:
        """Compute the product of a and the transposed matrix."""
        points = self._packed(self.points) if self._has_points else None
        operands = a.cast(FLOAT32), self._packed(self.steps), self.scales, points
        return op.MatMulNBits(*operands, domain=MICROSOFT, **self._sizes)

    @property
    def _sizes(self) -> dict[str, int]:
        return {"K": self.columns, "N": self.rows, "bits": self.bits, "block_size": self.steps.shape[2]}

    @property
    def _has_points(self) -> bool:
        """True if the zero points differ from the zero point that the kernel assumes by default."""
        return not (self.points == 1 << (self.bits - 1)).all()

    def _packed(self, numbers: AnyArray) -> AnyArray:
        """Return the numbers of the last dimension packed into bytes, the first number in the lowest bits."""
        if self.bits == 8:
            return np.ascontiguousarray(numbers)
        even = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, numbers.shape[-1] % 2)])
        packed: AnyArray = even[..., ::2] | even[..., 1::2] << 4
        return packed
