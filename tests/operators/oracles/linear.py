"""Matrix products."""

import numpy as np

from nnrt_hdi.enums import Format, NodeType

from .oracle import AnyArray, Attrs, Onnx, fused, oracle


@oracle(NodeType.FULL_CONNECTION)
def full_connection(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    x, weight = arrays[:2]
    axis = attrs.get("axis", 0 if attrs.get("use_axis") else None)
    kept = () if axis is None else x.shape[: axis % x.ndim]
    rows = model.op("Reshape", "x0", model.constant(np.array([-1, weight.shape[1]])))
    y = model.op("Gemm", rows, "x1", *(["x2"] if len(arrays) == 3 else []), transB=1)
    if axis is not None:
        y = model.op("Reshape", y, model.constant(np.array([*kept, weight.shape[0]])))
    return fused(model, y, x.dtype, attrs)


@oracle(NodeType.MATMUL_FUSION)
def matmul(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    def operand(index: int, transposed: bool) -> str:
        rank = arrays[index].ndim
        order = [*range(rank - 2), rank - 1, rank - 2]
        return model.op("Transpose", f"x{index}", perm=order) if transposed else f"x{index}"

    y = model.op("MatMul", operand(0, attrs.get("transpose_a", False)), operand(1, attrs.get("transpose_b", False)))
    return fused(model, y, arrays[0].dtype, attrs)
