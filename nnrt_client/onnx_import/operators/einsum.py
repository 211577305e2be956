"""ONNX's Einsum, by matrix products."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder, require_moderate
from nnrt_client.onnx_import.shapes.dims import Dims, broadcast, product
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value

# A letter, or a dimension of the ellipsis: -1 for its last one, -2 for the one before.
Label = str | int
Labels = tuple[Label, ...]


@dataclass(frozen=True, slots=True)
class Factor:
    """Tensor whose dimensions have labels."""

    value: Value
    labels: Labels

    def dims(self, labels: Sequence[Label]) -> Dims:
        return tuple(self.value.dims[self.labels.index(label)] for label in labels)


def sum_of_products(op: NodeBuilder, operands: Sequence[Value], equation: str) -> Value:
    """Multiply the operands, and sum over all labels that the output doesn't have."""
    terms, output = _parse(equation, operands)
    factors = [_take_diagonal(op, x, labels) for x, labels in zip(operands, terms, strict=True)]
    result = factors.pop(0)
    while factors:
        other = factors.pop(0)
        wanted = {*output, *(label for factor in factors for label in factor.labels)}
        left = _sum_unwanted(op, result, wanted.union(other.labels))
        right = _sum_unwanted(op, other, wanted.union(left.labels))
        result = _multiply(op, left, right, wanted)
    result = _sum_unwanted(op, result, set(output))
    return op.transpose(result.value, [result.labels.index(label) for label in output])


def _parse(equation: str, operands: Sequence[Value]) -> tuple[list[Labels], Labels]:
    """Parse the labels of the operands and of the output. By default the output has the labels that occur once."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(operands):
        refuse(f"its equation {equation!r:.80} has {len(texts)} terms, but there are {len(operands)} inputs")
    terms = [_parse_labels(text, x.rank, equation) for text, x in zip(texts, operands, strict=True)]
    known = [label for labels in terms for label in labels]
    widest = -min((label for label in known if isinstance(label, int)), default=0)
    if not arrow:
        once = (label for label in known if isinstance(label, str) and known.count(label) == 1)
        return terms, (*range(-widest, 0), *sorted(once))
    output = _parse_labels(right, len(right.replace("...", "")) + (widest if "..." in right else 0), equation)
    if len(set(output)) < len(output) or not set(known).issuperset(output):
        refuse(f"the output of its equation {equation!r:.80} has labels twice, or that no input has")
    return terms, output


def _parse_labels(text: str, rank: int, equation: str) -> Labels:
    before, ellipsis, behind = text.partition("...")
    named = before + behind
    rest = rank - len(named)
    if not ((named.isascii() and named.isalpha()) or not named) or rest < 0 or (rest and not ellipsis):
        refuse(f"{text!r:.80} in its equation {equation!r:.80} is no {rank} labels")
    return (*before, *range(-rest, 0), *behind)


def _take_diagonal(op: NodeBuilder, x: Value, labels: Labels) -> Factor:
    """Return the diagonal along dimensions with equal labels."""
    for at, label in reversed(list(enumerate(labels))):
        first = labels.index(label)
        if first == at:
            continue
        require_moderate((x.dims[first], x.dims[at]))
        sizes = [dim if axis in (first, at) else 1 for axis, dim in enumerate(x.shape)]
        mask = np.eye(x.shape[first], x.shape[at], dtype=np.bool_).reshape(sizes)
        x = op.apply(OperationType.WHERE, mask, x, op.number(0, x.dtype), dims=x.dims)
        x = _sum(op, x, [at])
        labels = (*labels[:at], *labels[at + 1 :])
    return Factor(x, labels)


def _sum_unwanted(op: NodeBuilder, factor: Factor, wanted: set[Label]) -> Factor:
    """Sum over the labels that are not in `wanted`."""
    gone = [at for at, label in enumerate(factor.labels) if label not in wanted]
    if not gone:
        return factor
    return Factor(_sum(op, factor.value, gone), tuple(label for label in factor.labels if label in wanted))


def _sum(op: NodeBuilder, x: Value, axes: Sequence[int]) -> Value:
    dims = tuple(dim for at, dim in enumerate(x.dims) if at not in axes)
    return op.apply(OperationType.REDUCE_SUM, x, np.array(axes, np.int64), keep_dims=False, dims=dims)


def _multiply(op: NodeBuilder, a: Factor, b: Factor, wanted: set[Label]) -> Factor:
    """Multiply two factors, and sum over the labels that both have and that are not in `wanted`."""
    shared = [label for label in a.labels if label in b.labels]
    inner = tuple(label for label in shared if label not in wanted)
    batch = tuple(label for label in shared if label in wanted)
    rows = tuple(label for label in a.labels if label not in shared)
    columns = tuple(label for label in b.labels if label not in shared)
    both = broadcast(a.dims(batch), b.dims(batch))
    target = (*both, *a.dims(rows), *b.dims(columns))
    left = _group_dims(op, a, batch, (rows, inner) if inner else (rows, ()))
    right = _group_dims(op, b, batch, (inner, columns) if inner else ((), columns))
    type_ = OperationType.MATMUL if inner else OperationType.MUL
    y = op.apply(type_, left, right, dims=(*both, product(a.dims(rows)), product(b.dims(columns))))
    empty = [len(both) + at for at, group in enumerate((rows, columns)) if not group]
    if len(rows) > 1 or len(columns) > 1:
        return Factor(op.reshape(y, target), (*batch, *rows, *columns))
    return Factor(op.squeeze(y, empty), (*batch, *rows, *columns))


def _group_dims(op: NodeBuilder, factor: Factor, batch: Labels, groups: tuple[Labels, Labels]) -> Value:
    """Transpose and reshape a factor to its batch dimensions, then one dimension for each of two groups of labels."""
    order = (*batch, *groups[0], *groups[1])
    x = op.transpose(factor.value, [factor.labels.index(label) for label in order])
    if any(len(group) > 1 for group in groups):
        return op.reshape(x, (*factor.dims(batch), *(product(factor.dims(group)) for group in groups)))
    at = len(batch)
    empty = [at + place for place, group in enumerate(groups) if not group]
    return op.unsqueeze(x, empty)
