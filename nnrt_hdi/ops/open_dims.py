"""Dimensions that only a run knows, as numbers that record what is done with them.

Inference calculates with `OpenDim`s as with integers. Each has its value in the current run. A `Tape` records the
arithmetic and the outcome of each comparison. In every run whose dimensions give the same outcomes inference takes the
same branches, so `Tape.find` computes its results without calling an operator.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_Function = Callable[[Any, Any], Any]
# Marks a step whose result is a truth value that must equal the recorded outcome.
_IS_CHECK = -1


class _Step(NamedTuple):
    """Step of a tape: applies a function to two values, and stores the result or checks its outcome."""

    function: _Function
    left: int
    right: int
    place: int
    outcome: bool = True


class Tape:
    """Record of what is done with the open dimensions of one run."""

    def __init__(self) -> None:
        # The numbers of this run by index: dimensions first, then constants and results.
        self.values: list[int] = []
        self._steps: list[_Step] = []
        self._constants: dict[int, int] = {}
        self._results: dict[tuple[_Function, int, int], Any] = {}

    def dims(self, lengths: Sequence[int]) -> "list[OpenDim]":
        """Return the dimensions of the run, of these lengths. Everything follows from them."""
        return [OpenDim(self, self._place(length), length) for length in lengths]

    def find(self, lengths: Sequence[int]) -> list[int] | None:
        """Return the values for a run with these dimensions, or None if inference may take another branch."""
        values = [*lengths, *self.values[len(lengths) :]]
        try:
            for function, left, right, place, outcome in self._steps:
                result = function(values[left], values[right])
                if place != _IS_CHECK:
                    values[place] = result
                elif result is not outcome:
                    return None
        except ZeroDivisionError:
            return None
        return values

    def apply(self, function: _Function, left: object, right: object) -> Any:
        """Apply an operation, record it, and return its result."""
        if not isinstance(left, OpenDim | int) or not isinstance(right, OpenDim | int):
            return NotImplemented
        key = function, self.place_of(left), self.place_of(right)
        if (known := self._results.get(key)) is not None:
            return known
        result = function(*[self.values[place] for place in key[1:]])
        if isinstance(result, bool):
            self._steps.append(_Step(*key, _IS_CHECK, result))
        else:
            result = OpenDim(self, self._place(result), result)
            self._steps.append(_Step(*key, result.place))
        self._results[key] = result
        return result

    def place_of(self, number: "OpenDim | int") -> int:
        """Return the index of a number in `values`."""
        if isinstance(number, OpenDim):
            return number.place
        if number not in self._constants:
            self._constants[number] = self._place(number)
        return self._constants[number]

    def end(self) -> None:
        """Drop what only recording needs."""
        self._constants.clear()
        self._results.clear()

    def _place(self, number: int) -> int:
        self.values.append(number)
        return len(self.values) - 1


def _forward(function: _Function) -> Callable[["OpenDim", object], Any]:
    return lambda self, other: self.tape.apply(function, self, other)


def _backward(function: _Function) -> Callable[["OpenDim", object], Any]:
    return lambda self, other: self.tape.apply(function, other, self)


class OpenDim:
    """Integer that follows from open dimensions.

    Converting it to `int`, or hashing it, restricts the tape to runs in which it has this value.
    """

    __slots__ = ("place", "tape", "value")

    def __init__(self, tape: Tape, place: int, value: int) -> None:
        self.tape = tape
        self.place = place
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
    """Return the larger number, and record it as a number. `max` would record which of both is larger."""
    for number in (one, other):
        if isinstance(number, OpenDim):
            result: int = number.tape.apply(max, one, other)
            return result
    return max(one, other)
