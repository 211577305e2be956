"""Dimensions that a run decides, as numbers that remember what is done with them.

Inference calculates with `OpenDim`s as with integers. Each has the value that it has in the run at hand, and a `Tape`
records the arithmetic, and how each comparison ends. In every run whose dimensions end all comparisons the same way
inference takes the same branches: so what it says follows from the tape (`Tape.find`), and no operator is asked.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_Function = Callable[[Any, Any], Any]
# In a step: its result is a truth value, and must be this one.
_IS_CHECK = -1


class _Step(NamedTuple):
    """Applies a function to the numbers in two places. Puts the result in a place, or demands an outcome."""

    function: _Function
    left: int
    right: int
    place: int
    outcome: bool = True


class Tape:
    """Records what is done with the open dimensions of one run."""

    def __init__(self) -> None:
        # Numbers of this run by their places: dimensions first, then constants and results.
        self.values: list[int] = []
        self._steps: list[_Step] = []
        self._constants: dict[int, int] = {}
        self._results: dict[tuple[_Function, int, int], Any] = {}

    def dims(self, lengths: Sequence[int]) -> "list[OpenDim]":
        """The dimensions of the run, of these lengths: what everything follows from."""
        return [OpenDim(self, self._place(length), length) for length in lengths]

    def find(self, lengths: Sequence[int]) -> list[int] | None:
        """The values of a run with dimensions of these lengths; None if inference may take another branch there."""
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
        """The result of an operation, recorded."""
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
        """The place of a number in `values`."""
        if isinstance(number, OpenDim):
            return number.place
        if number not in self._constants:
            self._constants[number] = self._place(number)
        return self._constants[number]

    def end(self) -> None:
        """Forget what only recording needs."""
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
    """An integer that follows from open dimensions.

    Who wants to have it as an `int`, or its hash, makes the tape one for runs in which it has this value.
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
    """The larger one, recorded as a number: `max` compares, and would record which one it is."""
    for number in (one, other):
        if isinstance(number, OpenDim):
            result: int = number.tape.apply(max, one, other)
            return result
    return max(one, other)
