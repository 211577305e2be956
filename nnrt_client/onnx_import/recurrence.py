"""Recurrences for which NNRt has no operation of their own: one step after the other."""

from collections.abc import Callable, Sequence

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.call import Call
from nnrt_client.onnx_import.dims import Dims
from nnrt_client.onnx_import.operator import refuse
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.tensor import Array

# Each is operations of its own.
_MOST_STEPS = 200
_ACTIVATIONS = {"relu": OperationType.RELU, "sigmoid": OperationType.SIGMOID, "tanh": OperationType.TANH}

# What a step makes of its row of inputs and the state before it.
Step = Callable[[Value, Value], Value]


def unrolled(
    call: Call,
    x: Value,
    initial: Value | None,
    hidden: int,
    direction: str,
    layout: int,
    make_step: Callable[[int, Value], tuple[Value, Step]],
) -> tuple[Value, Value]:
    """All states [steps, directions, batch, hidden], and the last of each direction.

    `make_step` gives for a direction and x what its steps read, a row for each, and the step itself.
    """
    if direction not in ("forward", "reverse", "bidirectional"):
        refuse(f"its direction is {direction!r}")
    directions = 2 if direction == "bidirectional" else 1
    if layout:
        x = call.transpose(x, [1, 0, 2])
        initial = initial and call.transpose(initial, [1, 0, 2])
    steps, batch, _ = x.dims
    if not isinstance(steps, int) or not 1 <= steps <= _MOST_STEPS:
        refuse(f"its steps become operations one by one, but x is {x}; use a known number, at most {_MOST_STEPS}")
    if initial is None:
        initial = first_states(call, x, (directions, batch, hidden))
    all_states, last_states = [], []
    for number in range(directions):
        read, step = make_step(number, x)
        rows = call.apply_to_several(OperationType.SPLIT, read, axis=0, output_num=steps, size_splits=(1,) * steps)
        state = call.apply(OperationType.GATHER, initial, np.array(number), np.array(0), dims=(batch, hidden))
        states = []
        is_backward = direction == "reverse" or number == 1
        for row in rows[::-1] if is_backward else rows:
            state = step(call.squeeze(row, [0]), state)
            states.append(call.unsqueeze(state, [0, 1]))
        all_states.append(_joined(call, states[::-1] if is_backward else states, 0))
        last_states.append(call.unsqueeze(state, [0]))
    y, last = _joined(call, all_states, 1), _joined(call, last_states, 0)
    return (call.transpose(y, [2, 0, 1, 3]), call.transpose(last, [1, 0, 2])) if layout else (y, last)


def first_states(call: Call, x: Value, dims: Dims) -> Value:
    """Zeros [directions, batch, hidden], for the batch of x [steps, batch, inputs]."""
    directions, batch, hidden = dims
    if isinstance(batch, int):
        return call.full(dims, 0, x.dtype)
    batches = call.reshape(call.size(x, 1), (1,))
    shape = call.apply(OperationType.CONCAT, np.array([directions]), batches, np.array([hidden]), axis=0)
    return call.filled(call.number(0, x.dtype), x.dtype, shape, dims)


def weights(w: Value, r: Value, b: Value | None, gates: int) -> tuple[Array, Array, Array, Array]:
    """W, R and both halves of B, which must be constants."""
    if w.array is None or r.array is None or (b is not None and b.array is None):
        refuse("its weights are known only in a run; make them constants")
    directions, rows, hidden = r.array.shape
    if rows != gates * hidden:
        refuse(f"its R is {r}; use {gates} gates of {hidden}")
    bias = np.zeros((directions, 2 * rows), r.dtype) if b is None or b.array is None else b.array
    return w.array, r.array, bias[:, :rows], bias[:, rows:]


def activation(name: str) -> OperationType:
    if name.lower() not in _ACTIVATIONS:
        refuse(f"it has the activation {name!r}; use Relu, Sigmoid or Tanh")
    return _ACTIVATIONS[name.lower()]


def are_full(lengths: Value | None, steps: object) -> bool:
    """Whether all sequences have as many steps as there are."""
    return lengths is None or (lengths.ints is not None and set(lengths.ints) == {steps})


def _joined(call: Call, parts: Sequence[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else call.apply(OperationType.CONCAT, *parts, axis=axis)
