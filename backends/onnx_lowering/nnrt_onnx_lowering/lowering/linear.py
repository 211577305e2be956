"""Matrix products, and recurrences built on them."""

from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.ops.linear import lstm_depth
from nnrt_hdi.tensor import UNKNOWN_DIM
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.lowering.activation import fused
from nnrt_onnx_lowering.lowering.lowering import Call, lowering
from nnrt_onnx_lowering.lowering.shape import cut_out
from nnrt_onnx_lowering.value import Value

NONE_OR_UNKNOWN = (0, UNKNOWN_DIM)


@lowering(NodeType.FULL_CONNECTION)
def full_connection(op: Onnx, call: Call, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """Compute y = f(X W^T + bias), where X is x as rows of W's length."""
    spec, out = call.inputs[0], call.outputs[0]
    columns = call.inputs[1].shape[1]
    if spec.rank == 2 and out.rank == 2 and columns in (spec.shape[1], UNKNOWN_DIM):
        rows = x
    else:
        count = UNKNOWN_DIM if out.is_dynamic else out.element_count // max(out.shape[-1], 1)
        rows = op.reshape(x, [count, op.size(weight, 1)])
    y = fused(op, op.Gemm(rows, weight, *([] if bias is None else [bias]), transB=1), call.attrs.activation_type)
    if out.rank == 2:
        return y
    return op.reshape(y, [*(op.size(x, axis) for axis in range(out.rank - 1)), op.size(weight, 0)])


@lowering(NodeType.MATMUL_FUSION)
def matmul(op: Onnx, call: Call, a: Value, b: Value) -> Value:
    """Compute y = f(A B) in the type of the output."""
    if call.inputs[0].shape[-2 if call.attrs.transpose_a else -1] == 0 and not call.outputs[0].is_dynamic:
        return op.Expand(op.scalar(0, call.dtype), op.ints(call.outputs[0].shape))  # An empty sum.
    a, b = a.cast(call.dtype), b.cast(call.dtype)
    a = _swapped(a, call.inputs[0].rank) if call.attrs.transpose_a else a
    b = _swapped(b, call.inputs[1].rank) if call.attrs.transpose_b else b
    return fused(op, op.MatMul(a, b), call.attrs.activation_type)


def _swapped(matrices: Value, rank: int) -> Value:
    return matrices.transposed([*range(rank - 2), rank - 1, rank - 2])


@lowering(NodeType.LSTM)
def lstm(
    op: Onnx, call: Call, x: Value, w_ih: Value, w_hh: Value, bias: Value, hx: Value, cx: Value
) -> tuple[Value, ...]:
    """Compute an LSTM with one ONNX operator per layer; ONNX's output has a dimension for the directions."""
    attrs, hidden = call.attrs, call.inputs[2].shape[-1]
    if attrs.zoneout_cell or attrs.zoneout_hidden:
        raise Unsupported("ONNX's LSTM has no zoneout; leave it out, or use another device")
    if hidden == UNKNOWN_DIM:
        raise Unsupported("the last dimension of w_hh is not known, which ONNX's LSTM needs; fix it")
    if call.inputs[0].shape[0] == 0:
        return op.reshape(x, call.outputs[0].shape), *(op.reshape(state, call.outputs[1].shape) for state in (hx, cx))
    layers, directions = lstm_depth(attrs.num_layers, attrs.num_directions, attrs.bidirectional)
    if layers == 1 and call.inputs[0].shape[2] in NONE_OR_UNKNOWN:  # Else it reads unwritten memory.
        x, w_ih = (
            op.Pad(value, op.ints([*[0] * (2 * spec.rank - 1), 1]))
            for value, spec in ((x, call.inputs[0]), (w_ih, call.inputs[1]))
        )
    operands = [
        op.unsqueeze(value, range(rank - spec.rank))
        for value, spec, rank in zip((w_ih, w_hh, bias, hx, cx), call.inputs[1:], (3, 3, 2, 3, 3), strict=True)
    ]
    batch = None
    if call.inputs[0].shape[1] in NONE_OR_UNKNOWN:  # With an empty batch ONNX Runtime ends the process.
        batch = op.Shape(x, start=1, end=2)
        lacking = op.Sub(op.ints([1]), op.Min(batch, op.ints([1])))
        pads = op.Concat(op.ints([0] * 4), lacking, op.ints([0]), axis=0)
        x, *operands[3:] = (op.Pad(value, pads) for value in (x, *operands[3:]))
    ends = []
    for layer in range(layers):
        span = [layer * directions], [(layer + 1) * directions]
        w, r, b, h, c = (value if layers == 1 else cut_out(op, value, [0], *span) for value in operands)
        direction = "bidirectional" if directions == 2 else "forward"
        biases = b if attrs.has_bias else None
        y, *states = op.multi_output("LSTM", 3, x, w, r, biases, None, h, c, direction=direction, hidden_size=hidden)
        x = op.Reshape(y.transposed([0, 2, 1, 3]), op.ints([0, 0, directions * hidden]))
        ends.append(states)
    outputs = x, *(state[0] if layers == 1 else op.Concat(*state, axis=0) for state in zip(*ends, strict=True))
    return outputs if batch is None else tuple(op.Slice(y, op.ints([0]), batch, op.ints([1])) for y in outputs)
