"""Matrix products of ONNX Runtime's optimizers and quantizers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.enums import FuseType, OperationType
from nnrt_client.onnx_import.operators.linear import gemm, lstm
from nnrt_client.onnx_import.operators.microsoft.fused import apply_activation
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import MICROSOFT, onnx_operator
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value, data_type_of
from nnrt_hdi.tensor import Array


@onnx_operator("FusedMatMul", domain=MICROSOFT)
def fused_matmul(
    op: NodeBuilder,
    a: Value,
    b: Value,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803  (ONNX's names)
    transB: int = 0,  # noqa: N803
    transBatchA: int = 0,  # noqa: N803
    transBatchB: int = 0,  # noqa: N803
) -> Value:
    """MATMUL, which transposes its operands, and MUL by alpha."""
    if transBatchA or transBatchB:
        refuse(f"its transBatchA is {transBatchA} and its transBatchB {transBatchB}; put Transpose before it")
    left = op.unsqueeze(a, [0]) if a.rank == 1 else a
    right = op.unsqueeze(b, [1]) if b.rank == 1 else b
    # Vectors have no transpose.
    turned = bool(transA) and a.rank > 1, bool(transB) and b.rank > 1
    y = op.apply(OperationType.MATMUL, left, right, transpose_a=turned[0], transpose_b=turned[1])
    y = op.squeeze(y, [axis for axis, operand in ((-2, a), (-1, b)) if operand.rank == 1])
    return y if alpha == 1 else op.apply(OperationType.MUL, y, op.number(alpha, y.dtype), dims=y.dims)


@onnx_operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    op: NodeBuilder,
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> Value:
    """Gemm, then the activation."""
    given = (activation_alpha, activation_beta, activation_gamma)
    parameters = [number for number in given if number is not None]
    op.activation = lambda: FuseType.NONE
    y = gemm(op, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return apply_activation(op, y, activation, parameters)


@onnx_operator("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamically_quantized_lstm(
    op: NodeBuilder,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    sequence_lens: Value | None,
    initial_h: Value | None,
    initial_c: Value | None,
    p: Value | None,
    w_scale: Value,
    w_zero_point: Value,
    r_scale: Value,
    r_zero_point: Value,
    *,
    activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (),
    activations: tuple[str, ...] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> tuple[Value, ...]:
    """LSTM with dequantized weights. Unlike ONNX Runtime, this import does not round inputs and states to 8 bits."""
    return lstm(
        op,
        x,
        op.constant(_real_weight(w, w_scale, w_zero_point)),
        op.constant(_real_weight(r, r_scale, r_zero_point)),
        b,
        sequence_lens,
        initial_h,
        initial_c,
        p,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        activations=activations,
        clip=clip,
        direction=direction,
        hidden_size=hidden_size,
        input_forget=input_forget,
    )


@onnx_operator("MatMulNBits", domain=MICROSOFT)
def matmul_of_few_bits(
    op: NodeBuilder,
    a: Value,
    b: Value,
    scales: Value,
    zero_points: Value | None = None,
    g_idx: Value | None = None,
    bias: Value | None = None,
    *,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    K: int,  # noqa: N803  (ONNX Runtime's names)
    N: int,  # noqa: N803
    weight_prepacked: int = 0,
) -> Value:
    """MATMUL by a UINT8 constant that a run dequantizes by CAST, SUB, MUL and RESHAPE, and ADD of the bias.

    If g_idx scatters the columns of blocks, a GATHER of A puts them side by side.

    SUB subtracts the zero points and MUL multiplies by the scales of the blocks. All is computed in the data type of A,
    even if accuracy_level permits less.
    """
    if weight_prepacked:
        refuse("its weight is laid out for one processor; save it without weight_prepacked")
    if b.array is None or scales.array is None or (zero_points is not None and zero_points.array is None):
        refuse("its weight is known only in a run; make it a constant")
    blocks = -(-K // block_size)
    unpacked = _unpack(b.array.reshape(N, blocks, -1), bits)
    if g_idx is not None:
        order = _order(g_idx, K, block_size)
        unpacked.reshape(N, -1)[:, :K] = unpacked.reshape(N, -1)[:, order]
        a = op.apply(OperationType.GATHER, a, order, np.array(a.rank - 1), dims=a.dims)
    steps = op.constant(unpacked)
    points: Array = np.array(1 << (bits - 1))
    if zero_points is not None and zero_points.array is not None:
        given = zero_points.array.reshape(N, -1)
        points = (given if given.dtype.kind == "f" else _unpack(given, bits))[:, :blocks, None]
    number = np.array(data_type_of(a.dtype).value, np.int32)
    centered = op.apply(
        OperationType.SUB, op.apply(OperationType.CAST, steps, number), op.constant(points.astype(a.dtype))
    )
    factors = op.constant(scales.array.reshape(N, blocks, 1).astype(a.dtype))
    weight = op.reshape(op.apply(OperationType.MUL, centered, factors), (N, blocks * block_size))
    if K % block_size:
        weight, _ = op.apply_to_several(
            OperationType.SPLIT, weight, axis=1, output_num=2, size_splits=[K, blocks * block_size - K]
        )
    y = op.apply(OperationType.MATMUL, a, weight, transpose_b=True)
    return y if bias is None else op.apply(OperationType.ADD, y, bias, dims=y.dims)


def _order(g_idx: Value, columns: int, block_size: int) -> NDArray[Any]:
    """Return the order of the columns in which those of a block lie together."""
    if g_idx.array is None:
        refuse("its g_idx is known only in a run; make it a constant")
    order = np.argsort(g_idx.array, kind="stable")
    if not np.array_equal(g_idx.array[order], np.arange(columns) // block_size):
        refuse(f"its g_idx does not give each block {block_size} columns; save it without g_idx")
    return order


def _unpack(packed: NDArray[Any], bits: int) -> NDArray[Any]:
    """Unpack numbers of 2, 4 or 8 bits along the last dimension. The first number is in the lowest bits of a byte."""
    if bits not in (2, 4, 8):
        refuse(f"its bits are {bits}; use 2, 4 or 8")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers: NDArray[Any] = (packed[..., None] >> shifts) & ((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], -1)


def _real_weight(weight: Value, scale: Value, zero_point: Value) -> Array:
    """Return the real weight [directions, 4 hidden, inputs] of integers [directions, inputs, 4 hidden]."""
    if weight.array is None or scale.array is None or zero_point.array is None:
        refuse("its weights are known only in a run; make them constants")
    factors, points = (array.reshape(len(array), 1, -1) for array in (scale.array, zero_point.array.astype(np.int32)))
    real = (weight.array.astype(np.int32) - points).astype(np.float32) * factors
    return np.ascontiguousarray(real.transpose(0, 2, 1))
