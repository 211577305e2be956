"""Matrix products with wrong layouts or missing elements, and LSTMs with wrong gates or states."""

from typing import Any

import numpy as np
from nnrt_backend_reference.kernels import activation, pieces
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel

from mutants.defect import function, kernel, with_attrs
from nnrt_hdi.enums import ActivationType, NodeType

FULL, MATMUL, LSTM = NodeType.FULL_CONNECTION, NodeType.MATMUL_FUSION, NodeType.LSTM


@kernel(FULL)
def weight_transposed_where_square(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, *bias: Any) -> Any:
    """The layout of a weight is guessed from its shape, wrongly if it is square."""
    is_square = weight.shape[0] == weight.shape[1]
    return right(call, x, weight.T if is_square else weight, *bias)


@kernel(FULL)
def bias_after_the_activation(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, *bias: Any) -> Any:
    """The bias of FULL_CONNECTION is added after the fused activation."""
    y = right(call, x, weight)
    return y + bias[0] if bias and bias[0] is not None else y


@kernel(FULL)
def bias_of_the_first_row(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, *bias: Any) -> Any:
    """Only the first row of a batch gets the bias."""
    y = np.array(right(call, x, weight, *bias))
    if bias and bias[0] is not None and y.ndim > 1:
        y[1:] = right(call, x, weight)[1:]
    return y


@kernel(MATMUL)
def transpose_a_ignored_where_square(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """transpose_a is ignored for square matrices."""
    is_square = a.shape[-1] == a.shape[-2]
    return right(with_attrs(call, transpose_a=False) if is_square else call, a, b)


@kernel(MATMUL)
def transpose_b_reverses_all(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """A stack of matrices is transposed by reshaping, which keeps the order of elements."""
    if not call.attrs.transpose_b or b.ndim < 3:
        return right(call, a, b)
    turned = b.reshape(-1).reshape((*b.shape[:-2], b.shape[-1], b.shape[-2]))
    return right(with_attrs(call, transpose_b=False), a, turned)


@kernel(MATMUL)
def first_matrix_of_b(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """Every matrix of a batch is multiplied by the first one of b."""
    first = b[(slice(0, 1),) * (b.ndim - 2)]
    return right(call, a, np.broadcast_to(first, b.shape))


@kernel(MATMUL)
def batches_repeated_in_turn(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """Batches are broadcast by repeating them, which is wrong if both are broadcast."""
    batch = call.outputs[0].shape[:-2]
    if a.ndim < 3 or b.ndim < 3 or 0 in call.outputs[0].shape:
        return right(call, a, b)
    count = int(np.prod(batch))
    flat = [array.reshape(-1, *array.shape[-2:]) for array in (a, b)]
    a, b = (array[np.arange(count) % len(array)] for array in flat)
    return right(call, a, b).reshape(call.outputs[0].shape)


@kernel(MATMUL)
def product_without_activation(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """MATMUL ignores the fused activation."""
    return right(with_attrs(call, activation_type=ActivationType.NO_ACTIVATION), a, b)


@function(pieces.product, MATMUL, FULL)
def products_in_eights(right: Kernel, a: AnyArray, b: AnyArray) -> Any:
    """Of more than eight products, those after the last whole block of eight are ignored."""
    inner = a.shape[-1]
    used = inner // 8 * 8 if inner > 8 else inner
    return right(a[..., :used], b[..., :used, :])


@kernel(LSTM)
def gates_in_the_order_of_torch(
    right: Kernel, call: Call, x: AnyArray, w_ih: AnyArray, w_hh: AnyArray, bias: AnyArray, *states: AnyArray
) -> Any:
    """The gates of an LSTM are read as i, f, g, o."""

    def reordered(weight: AnyArray, axis: int) -> AnyArray:
        i, f, g, o = np.split(weight, 4, axis)
        return np.concatenate([i, o, f, g], axis)

    halves = [reordered(half, -1) for half in np.split(bias, 2, -1)] if bias.shape[-1] % 8 == 0 else [bias]
    return right(call, x, reordered(w_ih, -2), reordered(w_hh, -2), np.concatenate(halves, -1), *states)


@kernel(LSTM)
def first_state_ignored(
    right: Kernel, call: Call, x: AnyArray, w_ih: AnyArray, w_hh: AnyArray, bias: AnyArray, hx: AnyArray, cx: AnyArray
) -> Any:
    """The initial h of an LSTM is always 0."""
    return right(call, x, w_ih, w_hh, bias, np.zeros_like(hx), cx)


@kernel(LSTM)
def bias_of_the_states_ignored(
    right: Kernel, call: Call, x: AnyArray, w_ih: AnyArray, w_hh: AnyArray, bias: AnyArray, *states: AnyArray
) -> Any:
    """An LSTM adds the input biases only, not the state biases."""
    only = bias.copy()
    only[..., only.shape[-1] // 2 :] = 0
    return right(call, x, w_ih, w_hh, only, *states)


@kernel(LSTM)
def backward_output_not_turned(right: Kernel, call: Call, x: AnyArray, *weights: AnyArray) -> Any:
    """The backward outputs of an LSTM are in the order of computation."""
    y, h, c = right(call, x, *weights)
    if call.attrs.bidirectional:
        y = y.copy()
        half = y.shape[2] // 2
        y[..., half:] = y[::-1, :, half:]
    return y, h, c


@kernel(LSTM)
def zoneout_ignored(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """An LSTM ignores zoneout_cell and zoneout_hidden."""
    return right(with_attrs(call, zoneout_cell=0.0, zoneout_hidden=0.0), *operands)


@kernel(LSTM)
def states_of_the_last_layer_only(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """The final states of every layer are those of the last layer."""
    y, h, c = right(call, *operands)
    directions = 2 if call.attrs.bidirectional else 1
    return y, *(np.concatenate([state[-directions:]] * (len(state) // directions)) for state in (h, c))


@function(activation.sigmoid, LSTM, NodeType.ACTIVATION)
def sigmoids_in_pieces(right: Kernel, x: AnyArray) -> Any:
    """Sigmoids, also those of gates, are piecewise linear."""
    return np.clip(x / 6 + 0.5, 0, 1)
