"""Einstein sums as matrix products: letters name dimensions, and two operands at a time are multiplied."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from string import ascii_letters

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.call import Call
from nnrt_client.onnx_import.dims import Dims, broadcast, product
from nnrt_client.onnx_import.operator import refuse
from nnrt_client.onnx_import.value import Value

_ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class Term:
    """A tensor, and the letters of its dimensions."""

    value: Value
    letters: str

    def dims(self, letters: str) -> Dims:
        return tuple(self.value.dims[self.letters.index(letter)] for letter in letters)


def letters_of(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result; those that nobody uses stand for the dots."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        refuse(f"its equation {equation!r} is for {len(terms)} operands, and it has {len(ranks)}")
    unused = [letter for letter in ascii_letters if letter not in equation]
    hidden = [
        max(rank - len(term) + len(_ELLIPSIS), 0) for term, rank in zip(terms, ranks, strict=True) if _ELLIPSIS in term
    ]
    dots = "".join(unused[: max(hidden, default=0)])
    counts = iter(hidden)
    operands = [
        # The last dimensions of several are the same.
        term.replace(_ELLIPSIS, dots[len(dots) - next(counts) :]) if _ELLIPSIS in term else term
        for term in terms
    ]
    together = "".join(operands)
    once = "".join(sorted(letter for letter in set(together) - set(dots) if together.count(letter) == 1))
    output = result.replace(_ELLIPSIS, dots) if arrow else dots + once
    for letters, rank in zip(operands, ranks, strict=True):
        if len(letters) != rank or not set(letters) <= set(ascii_letters):
            refuse(f"its equation {equation!r} does not have a letter for each dimension of its operands")
        if len(set(letters)) < rank:
            refuse(f"its equation {equation!r} takes a diagonal, which no operation of NNRt does")
    if len(set(output)) < len(output) or not set(output) <= set(together):
        refuse(f"the result of its equation {equation!r} has a letter twice, or one that no operand has")
    return operands, output


def multiplied(call: Call, a: Term, b: Term, kept: Collection[str]) -> Term:
    """The product of two terms, summed over the letters that nobody keeps."""
    a, b = summed(call, a, {*kept, *b.letters}), summed(call, b, {*kept, *a.letters})
    batch = "".join(letter for letter in a.letters if letter in b.letters and letter in kept)
    inner = "".join(letter for letter in a.letters if letter in b.letters and letter not in kept)
    rows = "".join(letter for letter in a.letters if letter not in b.letters)
    columns = "".join(letter for letter in b.letters if letter not in a.letters)
    y = call.apply(
        OperationType.MATMUL, _matrices(call, a, batch, rows, inner), _matrices(call, b, batch, inner, columns)
    )
    if max(len(rows), len(columns)) > 1:
        y = call.reshape(y, (*broadcast(a.dims(batch), b.dims(batch)), *a.dims(rows), *b.dims(columns)))
    else:
        y = call.squeeze(y, [len(batch) + at for at, letters in enumerate((rows, columns)) if not letters])
    return Term(y, batch + rows + columns)


def summed(call: Call, term: Term, kept: Collection[str]) -> Term:
    """A term summed over the letters that nobody keeps."""
    axes = [axis for axis, letter in enumerate(term.letters) if letter not in kept]
    if not axes:
        return term
    letters = "".join(letter for letter in term.letters if letter in kept)
    total = call.apply(OperationType.REDUCE_SUM, term.value, np.array(axes), keep_dims=False, dims=term.dims(letters))
    return Term(total, letters)


def in_order(call: Call, term: Term, letters: str) -> Value:
    """A term with its dimensions in the order of letters."""
    return call.transpose(term.value, [term.letters.index(letter) for letter in letters])


def _matrices(call: Call, term: Term, batch: str, rows: str, columns: str) -> Value:
    """A batch of matrices; several letters of a side become one dimension, none a dimension of 1."""
    x = in_order(call, term, batch + rows + columns)
    if max(len(rows), len(columns)) > 1:
        return call.reshape(x, (*term.dims(batch), product(term.dims(rows)), product(term.dims(columns))))
    missing = [len(batch) + at for at, letters in enumerate((rows, columns)) if not letters]
    return call.unsqueeze(x, missing)
