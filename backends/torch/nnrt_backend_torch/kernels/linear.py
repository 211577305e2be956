"""Matrix products, and recurrences built on them."""

import math
from collections.abc import Sequence

import torch
from torch.nn import functional

from nnrt_backend_torch.kernels.activation import activated
from nnrt_backend_torch.kernels.kernel import Call, Kernel, cast_all, kernel
from nnrt_backend_torch.kernels.pieces import product
from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.linear import lstm_depth
from nnrt_hdi.steps import check_stop

# The bits of an integer's digit, and the longest sum of products of digits that FLOAT64 represents exactly.
DIGIT_BITS, LONGEST_SUM = 16, 1 << 20
# torch's own LSTM prepares the weights in each run. It needs so many weights per step and row to lose more than it
# gains.
FEW_WEIGHTS = 1 << 12


@kernel(NodeType.FULL_CONNECTION)
def full_connection(
    call: Call, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute y = f(X W^T + bias), where X is x as rows of W's length."""
    x, weight, *biases = factors(call, x, weight, *(() if bias is None else (bias,)))
    shape = call.outputs[0].shape
    y = functional.linear(x.reshape(math.prod(shape[:-1]), weight.shape[1]), weight, *biases)
    return activated(call, y).reshape(shape)


@kernel(NodeType.MATMUL_FUSION)
def matmul(call: Call, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute y = f(A B) in the type of the output."""
    a, b = factors(call, a, b)
    a = a.mT if call.attrs.transpose_a else a
    b = b.mT if call.attrs.transpose_b else b
    # torch multiplies matrices of integers on CPUs and MPS only.
    if a.dtype.is_floating_point or a.device.type in ("cpu", "mps"):
        return activated(call, product(a, b))
    return activated(call, integer_product(a, b, call.outputs[0].numpy_dtype.itemsize * 8).to(call.dtype))


@kernel(NodeType.LSTM)
def lstm(
    call: Call,
    x: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    bias: torch.Tensor,
    hx: torch.Tensor,
    cx: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Compute an LSTM layer by layer, each forward and, if bidirectional, backward."""
    states = call.outputs[1].shape
    x, w_ih, w_hh, bias, hx, cx = cast_all(call.dtype, x, w_ih, w_hh, bias, hx, cx)
    w_ih, w_hh = (weight.reshape(states[0], *weight.shape[-2:]) for weight in (w_ih, w_hh))
    # Without biases, their operand may have any shape.
    biases = bias.reshape(states[0], 2, -1) if call.attrs.has_bias else None
    hx, cx = hx.reshape(states), cx.reshape(states)
    steps, batch, _ = x.shape
    if not steps:
        return x.new_empty(call.outputs[0].shape), hx, cx
    is_plain = not (call.attrs.zoneout_cell or call.attrs.zoneout_hidden)
    is_faster = x.is_cuda or (
        x.device.type == "cpu" and w_ih[0].numel() + w_hh[0].numel() <= FEW_WEIGHTS * steps * batch
    )
    compute = _whole_lstm if is_plain and is_faster and x.numel() else _lstm_by_steps
    return compute(call, x, w_ih, w_hh, biases, hx, cx)


def biased_product(transposed: bool) -> Kernel:
    """Return the kernel of f(A B + bias), where B is one matrix, perhaps transposed, and bias a vector."""

    def compute(call: Call, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        a, b, bias = factors(call, a, b, bias)
        return activated(call, functional.linear(a, b if transposed else b.mT, bias))

    return compute


def factors(call: Call, *tensors: torch.Tensor) -> list[torch.Tensor]:
    """Return the operands of products in the type to compute in.

    Products of FLOAT16 are summed in FLOAT32, and rounded once. CPUs convert the operands for it; other devices don't
    need to.
    """
    types = {spec.data_type for spec in (*call.inputs, *call.outputs)}
    if call.device.type != "cpu" and len(types) == 1 and all(tensor.dtype is torch.float16 for tensor in tensors):
        return list(tensors)
    return cast_all(call.dtype, *tensors)


def integer_product(a: torch.Tensor, b: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the last bits of the products of matrices of integers, as INT64.

    Multiplies digit by digit in FLOAT64, which is exact.
    """
    if a.shape[-1] > LONGEST_SUM:
        parts = zip(torch.split(a, LONGEST_SUM, dim=-1), torch.split(b, LONGEST_SUM, dim=-2), strict=True)
        return torch.stack([integer_product(*part, bits) for part in parts]).sum(dim=0)
    digits = [_digits(x, -(-bits // DIGIT_BITS)) for x in (a, b)]
    products = [
        torch.matmul(x, y).to(torch.int64) << ((i + j) * DIGIT_BITS)
        for i, x in enumerate(digits[0])
        for j, y in enumerate(digits[1][: len(digits[1]) - i])
    ]
    return sum(products[1:], start=products[0])


def _digits(x: torch.Tensor, count: int) -> list[torch.Tensor]:
    """Return the lowest digits of integers, the lowest first."""
    if count == 1:  # The last digit has the sign.
        return [x.to(torch.float64)]
    x = x.to(torch.int64)
    return [(x >> (at * DIGIT_BITS) & ((1 << DIGIT_BITS) - 1)).to(torch.float64) for at in range(count)]


def _whole_lstm(
    call: Call,
    x: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    biases: torch.Tensor | None,
    hx: torch.Tensor,
    cx: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Compute an LSTM with torch's own function."""
    layers, directions = lstm_depth(call.attrs.num_layers, call.attrs.num_directions, call.attrs.bidirectional)
    entries = range(len(w_ih))
    parameters = [weight for entry in entries for weight in (w_ih[entry], w_hh[entry])]
    if biases is not None:
        parameters += biases.flatten(end_dim=1).unbind()
    parameters = _in_torch_order(parameters)
    if biases is not None:
        behind = 2 * len(entries)
        parameters = [
            parameter
            for at in range(0, behind, 2)
            for parameter in (*parameters[at : at + 2], *parameters[behind + at : behind + at + 2])
        ]
    has_bias, is_twofold = biases is not None, directions == 2
    return torch.lstm(x, (hx, cx), parameters, has_bias, layers, 0.0, False, is_twofold, False)


def _in_torch_order(parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return parameters whose gates i, o, f, g are in torch's order i, f, g, o, side by side as cuDNN wants them."""
    quarters = (parameter.chunk(4) for parameter in parameters)
    flat = torch.cat([gate.reshape(-1) for i, o, f, g in quarters for gate in (i, f, g, o)])
    parts = torch.split(flat, [parameter.numel() for parameter in parameters])
    return [part.view(parameter.shape) for part, parameter in zip(parts, parameters, strict=True)]


def _lstm_by_steps(
    call: Call,
    x: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    biases: torch.Tensor | None,
    hx: torch.Tensor,
    cx: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Compute an LSTM step by step."""
    layers, directions = lstm_depth(call.attrs.num_layers, call.attrs.num_directions, call.attrs.bidirectional)
    # Both biases, for x and for h, are only added. So their sum is enough.
    both = [None] * len(w_ih) if biases is None else biases.sum(dim=1).unbind()
    last_h, last_c = torch.empty_like(hx), torch.empty_like(cx)
    for layer in range(layers):
        y = x.new_empty((*x.shape[:2], directions, hx.shape[2]))
        for direction in range(directions):
            entry = layer * directions + direction
            gates = functional.linear(x, w_ih[entry], both[entry]).unbind()
            steps = y[:, :, direction].unbind()
            if direction:
                gates, steps = gates[::-1], steps[::-1]
            last_h[entry], last_c[entry] = _recur(call, gates, steps, w_hh[entry].mT, hx[entry], cx[entry])
        x = y.flatten(start_dim=2)
    return x, last_h, last_c


def _recur(
    call: Call,
    gates: Sequence[torch.Tensor],
    y: Sequence[torch.Tensor],
    weight: torch.Tensor,
    h: torch.Tensor,
    c: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute one direction of a layer from the gates of x; write h after each step to y. Return the last h and c."""
    keep_c, keep_h = call.attrs.zoneout_cell, call.attrs.zoneout_hidden
    hidden = h.shape[-1]
    for gates_of_x, y_step in zip(gates, y, strict=True):
        check_stop()
        both = torch.addmm(gates_of_x, h, weight)
        i, o, f = both[:, : 3 * hidden].sigmoid_().chunk(3, dim=-1)
        new_c = torch.addcmul(f * c, i, both[:, 3 * hidden :].tanh_())
        h = _zoned_out(keep_h, h, torch.mul(o, new_c.tanh(), out=y_step), y_step)
        c = _zoned_out(keep_c, c, new_c, new_c)
    return h, c


def _zoned_out(keep: float, old: torch.Tensor, new: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.add(keep * old, (1 - keep) * new, out=out) if keep else new
