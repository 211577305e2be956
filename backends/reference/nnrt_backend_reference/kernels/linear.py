"""Matrix products, and recurrences built on them."""

import math

import numpy as np

from nnrt_backend_reference.kernels.activation import fused, sigmoid
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, cast_all, kernel
from nnrt_backend_reference.kernels.pieces import product
from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.linear import lstm_depth
from nnrt_hdi.steps import check_stop


@kernel(NodeType.FULL_CONNECTION)
def full_connection(call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray | None = None) -> AnyArray:
    """Compute y = f(X W^T + bias), where X is x as rows of W's length."""
    x, weight = cast_all(call.dtype, x, weight)
    shape = call.outputs[0].shape
    y = product(x.reshape(math.prod(shape[:-1]), weight.shape[1]), weight.T)
    if bias is not None:
        y += bias
    return fused(y, call.attrs.activation_type).reshape(shape)


@kernel(NodeType.MATMUL_FUSION)
def matmul(call: Call, a: AnyArray, b: AnyArray) -> AnyArray:
    """Compute y = f(A B) in the type of the output."""
    a, b = cast_all(call.dtype, a, b)
    a = a.swapaxes(-1, -2) if call.attrs.transpose_a else a
    b = b.swapaxes(-1, -2) if call.attrs.transpose_b else b
    return fused(product(a, b), call.attrs.activation_type)


@kernel(NodeType.LSTM)
def lstm(
    call: Call, x: AnyArray, w_ih: AnyArray, w_hh: AnyArray, bias: AnyArray, hx: AnyArray, cx: AnyArray
) -> tuple[AnyArray, ...]:
    """Compute an LSTM layer by layer, each forward and, if bidirectional, backward."""
    attrs = call.attrs
    layers, directions = lstm_depth(attrs.num_layers, attrs.num_directions, attrs.bidirectional)
    states = call.outputs[1].shape
    entries = states[0]
    x, w_ih, w_hh, bias, hx, cx = cast_all(call.dtype, x, w_ih, w_hh, bias, hx, cx)
    w_ih, w_hh = (weight.reshape(entries, *weight.shape[-2:]) for weight in (w_ih, w_hh))
    # Both biases, for x and for h, are only added. So their sum is enough.
    both = bias.reshape(entries, 2, -1).sum(axis=1) if attrs.has_bias else np.zeros((entries, 1), call.dtype)
    hx, cx = hx.reshape(states).copy(), cx.reshape(states).copy()
    for layer in range(layers):
        y = np.empty((*x.shape[:2], directions, states[2]), call.dtype)
        for direction in range(directions):
            entry = layer * directions + direction
            order = slice(None, None, -1 if direction else 1)
            _recur(call, x[order], y[order, :, direction], w_ih[entry], w_hh[entry], both[entry], hx[entry], cx[entry])
        x = y.reshape(*y.shape[:2], directions * states[2])
    return x, hx, cx


def _recur(
    call: Call, x: AnyArray, y: AnyArray, w_ih: AnyArray, w_hh: AnyArray, bias: AnyArray, h: AnyArray, c: AnyArray
) -> None:
    """Compute one direction of a layer step by step; h and c end with the last states, y has h after each step."""
    keep_c, keep_h = call.attrs.zoneout_cell, call.attrs.zoneout_hidden
    for x_step, y_step in zip(x, y, strict=True):
        check_stop()
        i, o, f, g = np.split(product(x_step, w_ih.T) + product(h, w_hh.T) + bias, 4, axis=-1)
        new_c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h[...] = _zoned_out(keep_h, h, sigmoid(o) * np.tanh(new_c))
        c[...] = _zoned_out(keep_c, c, new_c)
        y_step[...] = h


def _zoned_out(keep: float, old: AnyArray, new: AnyArray) -> AnyArray:
    return keep * old + (1 - keep) * new if keep else new
