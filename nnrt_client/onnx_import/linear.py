"""Matrix products, and the recurrences made of them."""

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.call import Call
from nnrt_client.onnx_import.einsum import sum_of_products
from nnrt_client.onnx_import.operator import onnx_operator, refuse
from nnrt_client.onnx_import.recurrence import Step, activation, are_full, first_states, unrolled, weights
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.tensor import Array


@onnx_operator("MatMul", is_quantizable=True, fuses=True)
def matmul(call: Call, a: Value, b: Value) -> Value:
    """MATMUL, vectors as matrices of one row or column."""
    if 0 in (a.rank, b.rank):
        refuse(f"it multiplies {a} by {b}; scalars are no matrices")
    left = call.unsqueeze(a, [0]) if a.rank == 1 else a
    right = call.unsqueeze(b, [1]) if b.rank == 1 else b
    y = call.apply(OperationType.MATMUL, left, right, activation=call.activation(), quant=call.quant)
    gone = [axis for axis, operand in ((-2, a), (-1, b)) if operand.rank == 1]
    return call.squeeze(y, gone)


@onnx_operator("Gemm", is_quantizable=True, fuses=True)
def gemm(
    call: Call,
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803  (ONNX's names)
    transB: int = 0,  # noqa: N803
) -> Value:
    """FULL_CONNECTION where it is one; else MATMUL, and MUL and ADD as far as alpha, beta and C ask for them."""
    if a.rank != 2 or b.rank != 2:
        refuse(f"it multiplies {a} by {b}; use matrices")
    columns = b.dims[0 if transB else 1]
    is_real = a.dtype.kind == "f" or call.quant is not None
    is_connection = is_real and not transA and alpha == 1 and -1 not in b.shape
    if is_connection and (c is None or (beta == 1 and c.dims in ((columns,), (1, columns)))):
        weight = b if transB else _turned(call, b)
        bias = [] if c is None else [call.reshape(c, (columns,)) if c.rank == 2 else c]
        return call.apply(
            OperationType.FULL_CONNECTION, a, weight, *bias, activation=call.activation(), quant=call.quant
        )
    if call.quant is not None:
        refuse("it is quantized, but no full connection")
    y = call.apply(OperationType.MATMUL, a, b, transpose_a=bool(transA), transpose_b=bool(transB))
    if alpha != 1:
        y = call.apply(OperationType.MUL, y, call.number(alpha, a.dtype))
    if c is None or beta == 0:
        return y
    if beta != 1:
        c = call.apply(OperationType.MUL, c, call.number(beta, a.dtype))
    return call.apply(OperationType.ADD, y, c, activation=call.activation())


def _turned(call: Call, weight: Value) -> Value:
    """A matrix with rows and columns swapped: a constant here and now, so that no run does it."""
    if not weight.is_constant:
        return call.transpose(weight, [1, 0])
    assert weight.array is not None
    return call.constant(
        np.ascontiguousarray(weight.array.T), quant=weight.quantized.param if weight.quantized else None
    )


@onnx_operator("Einsum", since=12)
def einsum(call: Call, *operands: Value, equation: str) -> Value:
    """MATMUL, or MUL where nothing is summed up, between TRANSPOSE, RESHAPE and REDUCE_SUM as the equation asks."""
    return sum_of_products(call, operands, equation)


@onnx_operator("LSTM")
def lstm(
    call: Call,
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
    """LSTM between STRIDED_SLICE where it only runs backwards, and RESHAPE and TRANSPOSE to ONNX's order of directions.

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
        x = call.transpose(x, [1, 0, 2])
    steps, batch, _ = x.dims
    hidden = r.shape[2]
    states = []
    for state in (initial_h, initial_c):
        if state is None:
            state = first_states(call, x, (directions, batch, hidden))
        elif layout:
            state = call.transpose(state, [1, 0, 2])
        states.append(state)
    bias = b if b is not None else call.full((directions, 8 * hidden), 0, x.dtype)
    if direction == "reverse":
        x = _reversed(call, x)
    y, last_h, last_c = call.apply_to_several(
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
        y = _reversed(call, y)
    # NNRt has the directions side by side, ONNX one behind the other.
    y = call.transpose(call.reshape(y, (steps, batch, directions, hidden)), [0, 2, 1, 3])
    if layout:
        y = call.transpose(y, [2, 0, 1, 3])
        last_h, last_c = (call.transpose(state, [1, 0, 2]) for state in (last_h, last_c))
    return y, last_h, last_c


@onnx_operator("GRU")
def gru(
    call: Call,
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
    """MATMUL, SIGMOID, TANH and others for each step: their number must be known."""
    _require_one_length(x, sequence_lens, layout)
    w_rows, r_rows, w_bias, r_bias = weights(w, r, b, 3)
    hidden = r_rows.shape[2]
    names = activations or ("Sigmoid", "Tanh") * len(r_rows)

    def make_step(number: int, x: Value) -> tuple[Value, Step]:
        gate, new = (activation(name) for name in names[2 * number : 2 * number + 2])
        gates, rest = r_rows[number, : 2 * hidden].T.copy(), r_rows[number, 2 * hidden :].T.copy()
        bias = w_bias[number] + r_bias[number]
        # What is reset includes this bias or not.
        reset_bias = r_bias[number, 2 * hidden :]
        if linear_before_reset:
            bias = np.concatenate([bias[: 2 * hidden], w_bias[number, 2 * hidden :]])
        parts = [2 * hidden, hidden]

        def step(row: Value, state: Value) -> Value:
            read, read_new = call.apply_to_several(OperationType.SPLIT, row, axis=1, output_num=2, size_splits=parts)
            both = call.apply(OperationType.ADD, read, call.apply(OperationType.MATMUL, state, gates))
            both = call.apply(gate, both)
            update, reset = call.apply_to_several(
                OperationType.SPLIT, both, axis=1, output_num=2, size_splits=[hidden] * 2
            )
            if linear_before_reset:
                known = call.apply(OperationType.ADD, call.apply(OperationType.MATMUL, state, rest), reset_bias)
                known = call.apply(OperationType.MUL, reset, known)
            else:
                known = call.apply(OperationType.MATMUL, call.apply(OperationType.MUL, reset, state), rest)
            made = call.apply(new, call.apply(OperationType.ADD, read_new, known))
            kept = call.apply(OperationType.MUL, update, call.apply(OperationType.SUB, state, made))
            return call.apply(OperationType.ADD, made, kept, dims=state.dims)

        return _projected(call, x, w_rows[number], bias), step

    return unrolled(call, x, initial_h, hidden, direction, layout, make_step)


@onnx_operator("RNN")
def rnn(
    call: Call,
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
    """MATMUL, ADD and TANH, RELU or SIGMOID for each step: their number must be known."""
    _require_one_length(x, sequence_lens, layout)
    w_rows, r_rows, w_bias, r_bias = weights(w, r, b, 1)

    def make_step(number: int, x: Value) -> tuple[Value, Step]:
        function = activation(activations[number])
        recurrent = r_rows[number].T.copy()

        def step(row: Value, state: Value) -> Value:
            total = call.apply(OperationType.ADD, row, call.apply(OperationType.MATMUL, state, recurrent))
            return call.apply(function, total, dims=state.dims)

        return _projected(call, x, w_rows[number], w_bias[number] + r_bias[number]), step

    return unrolled(call, x, initial_h, r_rows.shape[2], direction, layout, make_step)


def _projected(call: Call, x: Value, weight: Array, bias: Array) -> Value:
    """What all steps read of x, at once."""
    y = call.apply(OperationType.MATMUL, x, weight.T.copy())
    return call.apply(OperationType.ADD, y, bias)


def _require_one_length(x: Value, lengths: Value | None, layout: int) -> None:
    if not are_full(lengths, x.dims[1 if layout else 0]):
        refuse("it has sequence_lens; NNRt has one length for all")


def _reversed(call: Call, x: Value) -> Value:
    """The steps of a sequence from the last to the first."""
    return call.apply(
        OperationType.STRIDED_SLICE,
        x,
        np.array([-1]),
        np.array([0]),
        np.array([-1]),
        end_mask=1,
        dims=x.dims,
    )
