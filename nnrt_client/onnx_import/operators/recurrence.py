"""Recurrent networks for which NNRt has no operation: they are unrolled, step by step."""

from collections.abc import Callable, Sequence

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.shapes.dims import Dims
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.tensor import Array

# Each step becomes operations of its own.
_MOST_STEPS = 1000
# Most outputs of a SPLIT, and most inputs of a CONCAT.
_MOST_PARTS = 200
_ACTIVATIONS = {"relu": OperationType.RELU, "sigmoid": OperationType.SIGMOID, "tanh": OperationType.TANH}

# Function that gets the rows that a step reads and the last state, all [1, batch, ...], and returns the next state.
Cell = Callable[[Sequence[Value], Value], Value]


def unroll(
    op: NodeBuilder,
    x: Value,
    initial: Value | None,
    hidden: int,
    direction: str,
    layout: int,
    make_cell: Callable[[int, Value], tuple[Sequence[Value], Cell]],
) -> tuple[Value, Value]:
    """Unroll a recurrent network.

    Args:
        op: builder of the node.
        x: sequence [steps, batch, inputs], or [batch, steps, inputs] with layout 1.
        initial: first states, by default zeros.
        hidden: size of the state.
        direction: ONNX's attribute.
        layout: ONNX's attribute.
        make_cell: function of a direction's number and x; returns the tensors whose rows the steps read, and the cell.

    Returns:
        All states [steps, directions, batch, hidden], and the last state of each direction, in ONNX's layout.
    """
    if direction not in ("forward", "reverse", "bidirectional"):
        refuse(f"its direction is {direction!r}")
    directions = 2 if direction == "bidirectional" else 1
    if layout:
        x = op.transpose(x, [1, 0, 2])
        initial = initial and op.transpose(initial, [1, 0, 2])
    steps, batch, _ = x.dims
    if not isinstance(steps, int):
        refuse(f"NNRt has no {op.type}, so that each step becomes operations of its own, but x is {x}; fix its steps")
    if not 1 <= steps <= _MOST_STEPS:
        refuse(f"NNRt has no {op.type}, and each of the {steps} steps of {x} would be operations; use 1..{_MOST_STEPS}")
    if initial is None:
        initial = first_states(op, x, (directions, batch, hidden))
    all_states, last_states = [], []
    for number in range(directions):
        read, cell = make_cell(number, x)
        rows = list(zip(*(_split_steps(op, part, steps) for part in read), strict=True))
        state = op.apply(OperationType.GATHER, initial, np.array([number]), np.array(0), dims=(1, batch, hidden))
        states = []
        is_backward = direction == "reverse" or number == 1
        for row in rows[::-1] if is_backward else rows:
            state = cell(row, state)
            states.append(state)
        all_states.append(op.unsqueeze(_concatenate(op, states[::-1] if is_backward else states, 0), [1]))
        last_states.append(state)
    y, last = _concatenate(op, all_states, 1), _concatenate(op, last_states, 0)
    return (op.transpose(y, [2, 0, 1, 3]), op.transpose(last, [1, 0, 2])) if layout else (y, last)


def first_states(op: NodeBuilder, x: Value, dims: Dims) -> Value:
    """Return zeros [directions, batch, hidden]. A batch that only a run knows is taken from x [steps, batch, ...]."""
    directions, batch, hidden = dims
    if isinstance(batch, int):
        return op.full(dims, 0, x.dtype)
    batches = op.reshape(op.size(x, 1), (1,))
    shape = op.apply(OperationType.CONCAT, np.array([directions]), batches, np.array([hidden]), axis=0)
    return op.filled(op.number(0, x.dtype), x.dtype, shape, dims)


def weights(w: Value, r: Value, b: Value | None, gates: int) -> tuple[Array, Array, Array, Array]:
    """Return W, R and the halves of B for W and for R. Raise Unsupported unless they are constants."""
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
    """Return whether all sequences are known to have the full number of steps."""
    return lengths is None or (lengths.ints is not None and set(lengths.ints) == {steps})


def _split_steps(op: NodeBuilder, x: Value, steps: int) -> list[Value]:
    """Split x into parts of one step each."""
    if steps > _MOST_PARTS:
        sizes = [min(_MOST_PARTS, steps - start) for start in range(0, steps, _MOST_PARTS)]
        blocks = op.apply_to_several(OperationType.SPLIT, x, axis=0, output_num=len(sizes), size_splits=sizes)
        return [row for block, size in zip(blocks, sizes, strict=True) for row in _split_steps(op, block, size)]
    rows = op.apply_to_several(OperationType.SPLIT, x, axis=0, output_num=steps, size_splits=(1,) * steps)
    return list(rows)


def _concatenate(op: NodeBuilder, parts: Sequence[Value], axis: int) -> Value:
    if len(parts) > _MOST_PARTS:
        starts = range(0, len(parts), _MOST_PARTS)
        parts = [_concatenate(op, parts[start : start + _MOST_PARTS], axis) for start in starts]
    return parts[0] if len(parts) == 1 else op.apply(OperationType.CONCAT, *parts, axis=axis)
