"""Oracles of matrix products and LSTM."""

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


@oracle(NodeType.LSTM)
def lstm(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> tuple[str, ...]:
    """Build an LSTM node per layer.

    ONNX's output has a dimension for the direction, which is merged into the last one.
    """
    directions = 2 if attrs.get("bidirectional") else 1
    layers = attrs.get("num_layers") or 1
    hidden = arrays[2].shape[-1]
    names, states = "x0", []
    for layer in range(layers):
        entries = slice(layer * directions, (layer + 1) * directions)
        w_ih, w_hh, bias, hx, cx = (
            model.constant(np.ascontiguousarray(array.reshape(layers * directions, *array.shape[1 - rank :])[entries]))
            for array, rank in zip(arrays[1:], (3, 3, 2, 3, 3), strict=True)
        )
        y, h, c = model.ops(
            "LSTM",
            names,
            w_ih,
            w_hh,
            bias if attrs.get("has_bias") else "",
            "",
            hx,
            cx,
            outputs=3,
            direction="bidirectional" if directions == 2 else "forward",
            hidden_size=hidden,
        )
        side_by_side = model.constant(np.array([0, 0, directions * hidden]))
        names = model.op("Reshape", model.op("Transpose", y, perm=[0, 2, 1, 3]), side_by_side)
        states.append((h, c))
    return names, *(model.op("Concat", *ends, axis=0) for ends in zip(*states, strict=True))
