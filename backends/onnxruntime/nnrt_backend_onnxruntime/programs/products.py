"""Multiply-adds of a program's nodes, as factors that follow from shapes."""

from collections.abc import Callable, Mapping, Sequence

import onnx

from nnrt_backend_onnxruntime.programs.operators import ONNX_DOMAINS
from nnrt_backend_onnxruntime.programs.shapes import Dim, SizedTensor

_Dims = tuple[Dim, ...]
# By the dimensions of two inputs and of the output, and the integers among the node's attributes.
_RULES: dict[str, Callable[[_Dims, _Dims, _Dims, Mapping[str, int]], _Dims]] = {
    "MatMul": lambda a, b, y, attrs: (*y, *a[-1:]),
    "Gemm": lambda a, b, y, attrs: (*y, *(a[:1] if attrs.get("transA") else a[1:])),
    "Conv": lambda x, w, y, attrs: (*y[:1], *y[2:], *w),
    "ConvTranspose": lambda x, w, y, attrs: (*x[:1], *x[2:], *w),
}
# Others may be multiplied faster than FLOAT32.
_TYPES = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)


def factors_of(node: onnx.NodeProto, tensors: Sequence[SizedTensor | None]) -> _Dims | None:
    """Return the factors of a node's multiply-adds, or None if they aren't known; `tensors` are inputs and output."""
    rule = _RULES.get(node.op_type) if node.domain in ONNX_DOMAINS else None
    if rule is None or len(tensors) < 3:
        return None
    first, second, result = tensors[0], tensors[1], tensors[-1]
    if first is None or second is None or result is None or first.data_type not in _TYPES:
        return None
    factors = rule(first.dims, second.dims, result.dims, {attr.name: attr.i for attr in node.attribute})
    return None if None in factors else factors
