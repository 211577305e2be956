"""Vectors of sizes whose elements are partly known before the run, and operators that only pick and join elements.

Networks compute shapes from the shapes of tensors, element by element. Where an element is known, or its source is, the
model needs no node for it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnrt_onnx_lowering.value import INT64, Parts, Value

Attrs = Mapping[str, Any]
Rule = Callable[[Sequence[Value], Attrs], Value | None]

# Longer constants aren't sizes.
_MOST_ELEMENTS = 64


def fold(op_type: str, values: Sequence[Value | None], attrs: Attrs) -> Value | None:
    """Return the result of an operator on such vectors if it needs no node, else None."""
    rule = _RULES.get(op_type)
    if rule is None:
        return None
    given = [value for value in values if value is not None]
    if len(given) < len(values) or given[0].dtype != INT64:
        return None
    return rule(given, attrs)


def _gathered(values: Sequence[Value], attrs: Attrs) -> Value | None:
    x, indices = values
    parts, places = _parts(x), _numbers(indices)
    if x.rank != 1 or not places or not all(0 <= place < len(parts) for place in places):
        return None
    picked = [parts[place] for place in places]
    return x.op.vector(picked) if indices.rank else x.op.element(*picked)


def _sliced(values: Sequence[Value], attrs: Attrs) -> Value | None:
    x, *bounds = values
    numbers = [number for bound in bounds for number in _numbers(bound)]
    if x.rank != 1 or len(numbers) != len(bounds):
        return None
    start, end, _, step = (*numbers, *(0, 1)[len(numbers) - 2 :])
    picked = _parts(x)[start:end:step]
    return x.op.vector(picked) if picked else None


def _joined(values: Sequence[Value], attrs: Attrs) -> Value | None:
    parts = [_parts(value) for value in values]
    if len(values) < 2 or any(value.rank != 1 for value in values) or not all(parts):
        return None
    return values[0].op.vector([part for each in parts for part in each])


def _reshaped(values: Sequence[Value], attrs: Attrs) -> Value | None:
    """Return a vector that Reshape doesn't change, or the vector that it makes of a number."""
    x, shape = values
    parts = _parts(x)
    if not parts or _numbers(shape) not in ((len(parts),), (-1,)):
        return None
    return x if x.rank == 1 else x.op.vector(parts)


def _unsqueezed(values: Sequence[Value], attrs: Attrs) -> Value | None:
    x = values[0]
    return x.op.vector(x.parts) if x.rank == 0 and x.parts else None


def _squeezed(values: Sequence[Value], attrs: Attrs) -> Value | None:
    x, parts = values[0], _parts(values[0])
    return x.op.element(*parts) if x.rank == 1 and len(parts) == 1 else None


def _parts(value: Value) -> Parts:
    """Return the elements of a vector or a number as far as they are known, else an empty tuple."""
    if value.parts:
        return value.parts
    if value.data is not None:
        return _numbers(value)
    return (value,) if value.rank == 1 and value.shape == (1,) and value.dtype == INT64 else ()


def _numbers(value: Value) -> tuple[int, ...]:
    """Return the elements of a small constant vector or number, else an empty tuple."""
    if value.data is None or value.data.ndim > 1 or value.data.size > _MOST_ELEMENTS:
        return ()
    return tuple(int(number) for number in value.data.reshape(-1))


_RULES: dict[str, Rule] = {
    "Concat": _joined,
    "Gather": _gathered,
    "Reshape": _reshaped,
    "Slice": _sliced,
    "Squeeze": _squeezed,
    "Unsqueeze": _unsqueezed,
}
