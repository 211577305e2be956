"""Resizing of images whose sizes are known only in a run. The run computes where in x each new pixel lies.

Positions are FLOAT32 and are computed as ONNX Runtime computes them, so that both read the same pixels.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operation_builder import Operand
from nnrt_client.onnx_import.shapes.dims import Number
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value

_INT64, _FLOAT32 = np.dtype(np.int64), np.dtype(np.float32)


class Resampling:
    """Resizing of one dimension of x.

    Attributes:
        old: size before.
        count: size after, as INT64.
        new: size after, as FLOAT32.
        dim: size after, as far as it is known before a run.
        scale: factor from size before to size after.
        length: size after; if the caller gave a scale, `old` times `scale`, which need not be an integer.
        how: attributes of Resize.
    """

    def __init__(
        self,
        op: NodeBuilder,
        x: Value,
        axis: int,
        *,
        target: Value | None = None,
        scale: Value | None = None,
        dim: Number,
        how: Mapping[str, Any],
    ) -> None:
        self.op = op
        self.dim = dim
        self.how = how
        self.x = x
        self.axis = axis
        self.old = op.cast(op.reshape(op.size(x, axis), (1,)), _FLOAT32)
        if target is None:
            assert scale is not None
            target = op.cast(op.apply(OperationType.FLOOR, self._apply("MUL", self.old, scale)), _INT64)
        self.count = target
        self.new = op.cast(target, _FLOAT32)
        self.scale = self._apply("DIV", self.new, self.old) if scale is None else scale
        self.length = self.new if scale is None else self._apply("MUL", self.old, scale)

    def resize(self) -> Value:
        """Return x resized. The last dimension is swapped with the one before it, so that GATHER reads whole rows."""
        op, x, axis = self.op, self.x, self.axis
        if self.how["antialias"] or (self.how["exclude_outside"] and self.how["mode"] != "nearest"):
            refuse(f"it weights pixels by antialias or exclude_outside along dimension {axis} of {x}; fix its size")
        if axis != x.rank - 1 or axis == 0:
            return self._resize_along(x, axis)
        order = [*range(axis - 1), axis, axis - 1]
        return op.transpose(self._resize_along(op.transpose(x, order), axis - 1), order)

    def _resize_along(self, x: Value, axis: int) -> Value:
        position = self._positions()
        if self.how["mode"] == "nearest":
            return self._gather(x, axis, self._round(position))
        if self.how["mode"] == "linear":
            position = self._clamp(position)
        first = self.op.apply(OperationType.FLOOR, position)
        rest = self._apply("SUB", position, first)
        y: Value | None = None
        for offset, weight in self._weights(rest).items():
            pixels = self._gather(x, axis, self._apply("ADD", first, offset))
            behind = list(range(1, x.rank - axis))
            part = self._apply("MUL", pixels, self.op.unsqueeze(self.op.cast(weight, x.dtype), behind))
            y = part if y is None else self._apply("ADD", y, part)
        assert y is not None
        y.dims = (*x.dims[:axis], self.dim, *x.dims[axis + 1 :])
        return y

    def _gather(self, x: Value, axis: int, places: Value) -> Value:
        """Return the pixels at these positions. Positions outside the image read its edge."""
        indices = self.op.cast(self._clamp(places), _INT64)
        dims = (*x.dims[:axis], self.dim, *x.dims[axis + 1 :])
        return self.op.apply(OperationType.GATHER, x, indices, np.array(axis, np.int64), dims=dims)

    def _clamp(self, places: Value) -> Value:
        return self._apply("MINIMUM", self._apply("MAXIMUM", places, 0), self._apply("SUB", self.old, 1))

    def _positions(self) -> Value:
        """Return the positions of the new pixels, in pixels of x."""
        index = self.op.cast(self.op.count_up(self.count), _FLOAT32)
        middle = self._apply("ADD", index, 0.5)
        match self.how["coordinate_transformation_mode"]:
            case "asymmetric":
                return self._apply("DIV", index, self.scale)
            case "align_corners":
                # A single pixel has index 0, so any divisor other than 0 gives 0.
                steps = self._apply("MAXIMUM", self._apply("SUB", self.length, 1), 1e-6)
                return self._apply("DIV", self._apply("MUL", index, self._apply("SUB", self.old, 1)), steps)
            case "half_pixel":
                return self._apply("SUB", self._apply("DIV", middle, self.scale), 0.5)
            case "pytorch_half_pixel":
                is_single = self.op.apply(OperationType.LESS, self.new, self.op.number(1.5, _FLOAT32))
                position = self._apply("SUB", self._apply("DIV", middle, self.scale), 0.5)
                return self.op.apply(OperationType.WHERE, is_single, index, position)
            case "tf_half_pixel_for_nn":
                return self._apply("DIV", middle, self.scale)
            case "half_pixel_symmetric":
                share = self._apply("DIV", self.new, self._apply("MUL", self.scale, self.old))
                offset = self._apply("MUL", self._apply("MUL", self.old, 0.5), self._apply("SUB", 1, share))
                return self._apply("SUB", self._apply("ADD", offset, self._apply("DIV", middle, self.scale)), 0.5)
            case mode:
                return refuse(f"its coordinate_transformation_mode is {mode!r}")

    def _round(self, position: Value) -> Value:
        floor, ceil = OperationType.FLOOR, OperationType.CEIL
        match self.how["nearest_mode"]:
            case "floor":
                return self.op.apply(floor, position)
            case "ceil":
                return self.op.apply(ceil, position)
            case "round_prefer_floor":
                return self.op.apply(ceil, self._apply("SUB", position, 0.5))
            case "round_prefer_ceil":
                return self.op.apply(floor, self._apply("ADD", position, 0.5))
            case mode:
                return refuse(f"its nearest_mode is {mode!r}")

    def _weights(self, rest: Value) -> dict[int, Value]:
        """Return the weights of the pixels around a position, by offset from its floor.

        Mode 'cubic' is equation 4 of R. Keys, "Cubic convolution interpolation" (1981).
        """
        opposite = self._apply("SUB", 1, rest)
        if self.how["mode"] == "linear":
            return {0: opposite, 1: rest}
        a = self.how["cubic_coeff_a"]

        def polynomial(t: Value, *factors: float) -> Value:
            y: Operand = factors[0]
            for factor in factors[1:]:
                y = self._apply("ADD", self._apply("MUL", t, y), factor)
            assert isinstance(y, Value)
            return y

        far, near = (a, -5 * a, 8 * a, -4 * a), (a + 2, -(a + 3), 0, 1)
        return {
            -1: polynomial(self._apply("ADD", rest, 1), *far),
            0: polynomial(rest, *near),
            1: polynomial(opposite, *near),
            2: polynomial(self._apply("ADD", opposite, 1), *far),
        }

    def _apply(self, name: str, a: Operand, b: Operand) -> Value:
        """Apply an operation to values or numbers."""
        given = [value if isinstance(value, Value) else np.array(value, np.float32) for value in (a, b)]
        return self.op.apply(OperationType[name], *given)
