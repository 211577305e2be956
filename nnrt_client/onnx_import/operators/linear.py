"""Matrix products, and recurrent networks."""

from collections.abc import Sequence

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.einsum import sum_of_products
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operation_builder import Operand
from nnrt_client.onnx_import.operators.operator import onnx_operator
from nnrt_client.onnx_import.operators.recurrence import Cell, activation, are_full, first_states, unroll, weights
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.tensor import Array


@onnx_operator("MatMul", is_quantizable=True, fuses=True)
def matmul(op: NodeBuilder, a: Value, b: Value) -> Value:
    """MATMUL; vectors become matrices of one row or column."""
    if 0 in (a.rank, b.rank):
        refuse(f"it multiplies {a} by {b}; scalars are no matrices")
    left = op.unsqueeze(a, [0]) if a.rank == 1 else a
    right = op.unsqueeze(b, [1]) if b.rank == 1 else b
    y = op.apply(OperationType.MATMUL, left, right, activation=op.activation(), quant=op.quant)
    gone = [axis for axis, operand in ((-2, a), (-1, b)) if operand.rank == 1]
    return op.squeeze(y, gone)


@onnx_operator("Gemm", is_quantizable=True, fuses=True)
def gemm(
    op: NodeBuilder,
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803  (ONNX's names)
    transB: int = 0,  # noqa: N803
) -> Value:
    """FULL_CONNECTION if alpha, beta, C and transA allow it; else MATMUL, with MUL and ADD for alpha, beta and C."""
    if a.rank != 2 or b.rank != 2:
        refuse(f"it multiplies {a} by {b}; use matrices")
    columns = b.dims[0 if transB else 1]
    is_real = a.dtype.kind == "f" or op.quant is not None
    is_connection = is_real and not transA and alpha == 1 and -1 not in b.shape
    if is_connection and (c is None or (beta == 1 and c.dims in ((columns,), (1, columns)))):
        weight = b if transB else _transpose_matrix(op, b)
        bias = [] if c is None else [op.reshape(c, (columns,)) if c.rank == 2 else c]
        return op.apply(OperationType.FULL_CONNECTION, a, weight, *bias, activation=op.activation(), quant=op.quant)
    if op.quant is not None:
        refuse("it is quantized, but no full connection")
    y = op.apply(OperationType.MATMUL, a, b, transpose_a=bool(transA), transpose_b=bool(transB))
    if alpha != 1:
        y = op.apply(OperationType.MUL, y, op.number(alpha, a.dtype))
    if c is None or beta == 0:
        return y
    if beta != 1:
        c = op.apply(OperationType.MUL, c, op.number(beta, a.dtype))
    return op.apply(OperationType.ADD, y, c, activation=op.activation())


def _transpose_matrix(op: NodeBuilder, weight: Value) -> Value:
    """Transpose a matrix. A constant is transposed at import, so that no run has to."""
    if not weight.is_constant:
        return op.transpose(weight, [1, 0])
    assert weight.array is not None
    turned = weight.array.T
    # The model keeps an array over bytes without a copy, because bytes are immutable.
    turned = np.frombuffer(turned.tobytes(), turned.dtype).reshape(turned.shape)
    return op.constant(turned, quant=weight.quantized.param if weight.quantized else None)


@onnx_operator("Einsum", since=12)
def einsum(op: NodeBuilder, *operands: Value, equation: str) -> Value:
    """MATMUL, or MUL without a sum, between TRANSPOSE, RESHAPE and REDUCE_SUM as the equation requires."""
    return sum_of_products(op, operands, equation)


@onnx_operator("LSTM")
def lstm(
    op: NodeBuilder,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    initial_c: Value | None = None,
    p: Value | None = None,
    *,
    activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (),
    activations: tuple[str, ...] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Value, ...]:
    """LSTM, then RESHAPE and TRANSPOSE to ONNX's order of directions; in reverse direction between STRIDED_SLICE.

    Not mapped: lengths of sequences, peepholes, clipping, and other activation functions.
    """
    directions = 2 if direction == "bidirectional" else 1
    usual = ("sigmoid", "tanh", "tanh") * directions
    _require_one_length(x, sequence_lens, layout)
    if p is not None or clip is not None or input_forget:
        refuse("it has peepholes, clip or input_forget, which NNRt's LSTM doesn't")
    if activations and tuple(map(str.lower, activations)) != usual:
        refuse(f"its activations are {list(activations)}; NNRt's LSTM has Sigmoid, Tanh, Tanh")
    if direction not in ("forward", "reverse", "bidirectional"):
        refuse(f"its direction is {direction!r}")
    if layout:
        x = op.transpose(x, [1, 0, 2])
    steps, batch, _ = x.dims
    hidden = r.shape[2]
    states = []
    for state in (initial_h, initial_c):
        if state is None:
            state = first_states(op, x, (directions, batch, hidden))
        elif layout:
            state = op.transpose(state, [1, 0, 2])
        states.append(state)
    bias = b if b is not None else op.full((directions, 8 * hidden), 0, x.dtype)
    if direction == "reverse":
        x = _reverse(op, x)
    y, last_h, last_c = op.apply_to_several(
        OperationType.LSTM,
        x,
        w,
        r,
        bias,
        *states,
        has_bias=b is not None,
        bidirectional=directions == 2,
    )
    y.dims = (steps, batch, directions * hidden)
    if direction == "reverse":
        y = _reverse(op, y)
    # NNRt concatenates the directions in the last dimension. In ONNX they are a dimension of their own.
    y = op.transpose(op.reshape(y, (steps, batch, directions, hidden)), [0, 2, 1, 3])
    if layout:
        y = op.transpose(y, [2, 0, 1, 3])
        last_h, last_c = (op.transpose(state, [1, 0, 2]) for state in (last_h, last_c))
    return y, last_h, last_c


@onnx_operator("GRU")
def gru(
    op: NodeBuilder,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    *,
    activations: tuple[str, ...] = (),
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Value, ...]:
    """MATMUL, SIGMOID, TANH and others for each step; the number of steps must be known."""
    _require_one_length(x, sequence_lens, layout)
    w_rows, r_rows, w_bias, r_bias = weights(w, r, b, 3)
    hidden = r_rows.shape[2]
    names = activations or ("Sigmoid", "Tanh") * len(r_rows)

    def make_cell(number: int, x: Value) -> tuple[Sequence[Value], Cell]:
        gate, new = (activation(name) for name in names[2 * number : 2 * number + 2])
        gates, rest = r_rows[number, : 2 * hidden].T.copy(), r_rows[number, 2 * hidden :].T.copy()
        bias = w_bias[number] + r_bias[number]
        # With linear_before_reset, the reset gate also scales this bias.
        reset_bias = r_bias[number, 2 * hidden :]
        if linear_before_reset:
            bias = np.concatenate([bias[: 2 * hidden], w_bias[number, 2 * hidden :]])

        def cell(row: Sequence[Value], state: Value) -> Value:
            read, read_new = row
            dims = state.dims

            def apply(type: OperationType, *operands: Operand) -> Value:
                return op.apply(type, *operands, dims=dims)

            both = op.apply(OperationType.MATMUL, state, gates, dims=read.dims)
            both = op.apply(gate, op.apply(OperationType.ADD, read, both, dims=read.dims), dims=read.dims)
            update, reset = op.apply_to_several(
                OperationType.SPLIT, both, axis=2, output_num=2, size_splits=[hidden] * 2
            )
            if linear_before_reset:
                known = apply(OperationType.ADD, apply(OperationType.MATMUL, state, rest), reset_bias)
                known = apply(OperationType.MUL, reset, known)
            else:
                known = apply(OperationType.MATMUL, apply(OperationType.MUL, reset, state), rest)
            made = apply(new, apply(OperationType.ADD, read_new, known))
            kept = apply(OperationType.MUL, update, apply(OperationType.SUB, state, made))
            return apply(OperationType.ADD, made, kept)

        read = [
            _project(op, x, w_rows[number, part], bias[part]) for part in (slice(2 * hidden), slice(2 * hidden, None))
        ]
        return read, cell

    return unroll(op, x, initial_h, hidden, direction, layout, make_cell)


@onnx_operator("RNN")
def rnn(
    op: NodeBuilder,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    *,
    activations: tuple[str, ...] = ("Tanh", "Tanh"),
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Value, ...]:
    """MATMUL, ADD and TANH, RELU or SIGMOID for each step; the number of steps must be known."""
    _require_one_length(x, sequence_lens, layout)
    w_rows, r_rows, w_bias, r_bias = weights(w, r, b, 1)

    def make_cell(number: int, x: Value) -> tuple[Sequence[Value], Cell]:
        function = activation(activations[number])
        recurrent = r_rows[number].T.copy()

        def cell(row: Sequence[Value], state: Value) -> Value:
            remembered = op.apply(OperationType.MATMUL, state, recurrent, dims=state.dims)
            total = op.apply(OperationType.ADD, row[0], remembered, dims=state.dims)
            return op.apply(function, total, dims=state.dims)

        return [_project(op, x, w_rows[number], w_bias[number] + r_bias[number])], cell

    return unroll(op, x, initial_h, r_rows.shape[2], direction, layout, make_cell)


def _project(op: NodeBuilder, x: Value, weight: Array, bias: Array) -> Value:
    """Compute x times weight plus bias, for all steps at once."""
    y = op.apply(OperationType.MATMUL, x, weight.T.copy())
    return op.apply(OperationType.ADD, y, bias)


def _require_one_length(x: Value, lengths: Value | None, layout: int) -> None:
    if not are_full(lengths, x.dims[1 if layout else 0]):
        refuse("it has sequence_lens; NNRt has one length for all")


def _reverse(op: NodeBuilder, x: Value) -> Value:
    """Reverse the steps of a sequence."""
    return op.apply(
        OperationType.STRIDED_SLICE,
        x,
        np.array([-1]),
        np.array([0]),
        np.array([-1]),
        end_mask=1,
        dims=x.dims,
    )
