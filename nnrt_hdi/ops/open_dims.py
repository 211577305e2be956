"""Open dimensions as integers that record the arithmetic on them, so that inference can be replayed for another run.

Inference calculates with `OpenDim`s as with integers. Each has its value in the recorded run. A `Tape` records the
arithmetic and the outcome of each comparison. In every run whose dimensions give the same outcomes inference takes the
same branches, so `Tape.replay` computes its results without calling an operator.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_Function = Callable[[Any, Any], Any]
# Target of a step whose result is a truth value, which must equal the recorded outcome.
_IS_CHECK = -1


class _Step(NamedTuple):
    """Step of a tape: applies a function to two values, and stores the result at `target` or compares its outcome."""

    function: _Function
    left: int
    right: int
    target: int
    outcome: bool = True


class Tape:
    """Recording of the arithmetic on the open dimensions of one run."""

    def __init__(self) -> None:
        # Integers of the recorded run: dimensions first, then constants and results.
        self.values: list[int] = []
        self._steps: list[_Step] = []
        self._constants: dict[int, int] = {}
        self._results: dict[tuple[_Function, int, int], Any] = {}

    def dims(self, lengths: Sequence[int]) -> "list[OpenDim]":
        """Return the open dimensions of the recorded run. Called once, before anything else."""
        return [OpenDim(self, self._append(length), length) for length in lengths]

    def replay(self, lengths: Sequence[int]) -> list[int] | None:
        """Return `values` of a run with these open dimensions, or None if inference may take another branch."""
        values = [*lengths, *self.values[len(lengths) :]]
        try:
            for function, left, right, target, outcome in self._steps:
                result = function(values[left], values[right])
                if target != _IS_CHECK:
                    values[target] = result
                elif result is not outcome:
                    return None
        except ZeroDivisionError:
            return None
        return values

    def apply(self, function: _Function, left: object, right: object) -> Any:
        """Apply a function, record the step, and return the result."""
        if not isinstance(left, OpenDim | int) or not isinstance(right, OpenDim | int):
            return NotImplemented
        key = function, self.index_of(left), self.index_of(right)
        if (known := self._results.get(key)) is not None:
            return known
        result = function(*[self.values[index] for index in key[1:]])
        if isinstance(result, bool):
            self._steps.append(_Step(*key, _IS_CHECK, result))
        else:
            result = OpenDim(self, self._append(result), result)
            self._steps.append(_Step(*key, result.index))
        self._results[key] = result
        return result

    def index_of(self, number: "OpenDim | int") -> int:
        """Return the index of a number in `values`."""
        if isinstance(number, OpenDim):
            return number.index
        if number not in self._constants:
            self._constants[number] = self._append(number)
        return self._constants[number]

    def end(self) -> None:
        """End the recording, and free what only it needs."""
        self._constants.clear()
        self._results.clear()

    def _append(self, number: int) -> int:
        self.values.append(number)
        return len(self.values) - 1


def _forward(function: _Function) -> Callable[["OpenDim", object], Any]:
    return lambda self, other: self.tape.apply(function, self, other)


def _backward(function: _Function) -> Callable[["OpenDim", object], Any]:
    return lambda self, other: self.tape.apply(function, other, self)


class OpenDim:
    """Integer computed from open dimensions.

    Converting it to `int`, or hashing it, restricts the tape to runs in which it has this value.
    """

    __slots__ = ("index", "tape", "value")

    def __init__(self, tape: Tape, index: int, value: int) -> None:
        self.tape = tape
        self.index = index
        self.value = value

    __add__, __radd__ = _forward(operator.add), _backward(operator.add)
    __sub__, __rsub__ = _forward(operator.sub), _backward(operator.sub)
    __mul__, __rmul__ = _forward(operator.mul), _backward(operator.mul)
    __floordiv__, __rfloordiv__ = _forward(operator.floordiv), _backward(operator.floordiv)
    __mod__, __rmod__ = _forward(operator.mod), _backward(operator.mod)
    __eq__, __ne__ = _forward(operator.eq), _forward(operator.ne)
    __lt__, __le__ = _forward(operator.lt), _forward(operator.le)
    __gt__, __ge__ = _forward(operator.gt), _forward(operator.ge)

    def __neg__(self) -> Any:
        return 0 - self

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __index__(self) -> int:
        self.tape.apply(operator.eq, self, self.value)
        return self.value

    def __int__(self) -> int:
        return self.__index__()

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __repr__(self) -> str:
        return str(self.value)


def larger(one: int, other: int) -> int:
    """Return the larger number, and record that it is the maximum of both.

    Python's `max` would record which of the numbers is larger, so the tape would only fit runs in which that is so.
    """
    for number in (one, other):
        if isinstance(number, OpenDim):
            result: int = number.tape.apply(max, one, other)
            return result
    return max(one, other)
