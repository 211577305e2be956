"""States of a model: outputs of a run that are inputs of the next one, found by their names or told by the caller."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import UNKNOWN_DIM, Array

# Marks of inputs, and of outputs, in the names that exporters and authors of models give. What is left without its mark
# is the same for both: `past.0.key` and `present.0.key`, `h_0` and `h_n`.
_PAST, _PRESENT = frozenset({"past"}), frozenset({"present", "presents"})
_BEFORE = frozenset({"in", "input", "old", "prev", "previous", "init", "initial", "0"})
_AFTER = frozenset({"out", "output", "new", "next", "updated", "cur", "current", "n", "r"})
# Words of which a name that has no past or present needs one, or a word of one letter: an `image_out` is no state.
_REMEMBERED = frozenset(
    {"buf", "buffer", "buffers", "cache", "cached", "caches", "carry", "cell", "cells", "context", "cx", "hidden"}
    | {"hx", "mem", "memory", "past", "state", "states"}
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
# LSTMs are written with names like hn and c0, of which the last letter is the mark.
_TWO_LETTERS = re.compile(r"[hc][n0]")

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class State:
    """Input that an output is kept for.

    Attributes:
        input: Name of the input.
        axis: Dimension along which the output is appended, or of which a window is kept; None for neither.
        appends: Whether the output is appended to the input's value. Otherwise it replaces that value.
        window: How many of the last entries along `axis` are kept; 0 for all.
    """

    input: str
    axis: int | None = None
    appends: bool = False
    window: int = 0


# The input, or how it is kept, by the name of the output.
States = Mapping[str, str | State]


def found_states(inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> dict[str, State]:
    """Find the states of a model by names such as `present.0.key` and `past_key_values.0.key`, or `hn` and `h`.

    Data types must be equal, and shapes may differ only where one of the two is open. Where several inputs fit an
    output, or several outputs an input, none of them is taken.

    Returns:
        The state of each output that has one.
    """
    pairs = [
        (output.name, given.name)
        for output in outputs
        for given in inputs
        if _are_named_alike(given.name, output.name) and not _misfit(output, given)
    ]
    by_output, by_input = Counter(output for output, _ in pairs), Counter(given for _, given in pairs)
    return {output: State(given) for output, given in pairs if by_output[output] == by_input[given] == 1}


def checked_states(states: States, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> dict[str, State]:
    """Return states as State objects with axes counted from the front.

    Raises:
        InvalidParameter: A name doesn't exist, an output can't become its input, or two outputs have one input.
    """
    inputs_by_name, outputs_by_name = ({desc.name: desc for desc in descs} for descs in (inputs, outputs))
    checked: dict[str, State] = {}
    owner: dict[str, str] = {}
    for name, told in states.items():
        state = told if isinstance(told, State) else State(told)
        output, given = named("output", name, outputs_by_name), named("input", state.input, inputs_by_name)
        first = owner.setdefault(given.name, name)
        if first != name:
            raise InvalidParameter(
                f"input {given.name!r} is the state of {first!r} and of {name!r}; give it one output"
            )
        try:
            checked[name] = _checked(state, output, given)
        except InvalidParameter as error:
            raise error.at(f"state {name!r} of input {given.name!r}") from error
    return checked


def initial_value(desc: TensorDesc) -> Array:
    """Return the value that an input has first: zeros, with 1 as an open dimension 0 and 0 as other open ones.

    Dimension 0 is the batch, the others count what is remembered. Give a value where an input means something else.
    """
    shape = desc.shape or ()
    dims = [(int(axis == 0) if dim == UNKNOWN_DIM else dim) for axis, dim in enumerate(shape)]
    return np.zeros(dims, desc._to_spec().numpy_dtype)


def named(what: str, name: str, descs: Mapping[str, TensorDesc]) -> TensorDesc:
    """Return a description by name. Raise InvalidParameter if the model has none of that name."""
    try:
        return descs[name]
    except KeyError:
        raise InvalidParameter(f"the model has no {what} {name!r}; its {what}s are {', '.join(descs)}") from None


def _checked(state: State, output: TensorDesc, given: TensorDesc) -> State:
    """Return a state with its axis counted from the front. Raise InvalidParameter for one that can't be kept."""
    if state.window < 0:
        raise InvalidParameter(f"the window is {state.window}; use 1 or more entries, or 0 for all")
    is_along = state.appends or state.window > 0
    if is_along != (state.axis is not None):
        wrong = "there is no axis; give the dimension" if is_along else f"axis is {state.axis}; leave it None, or set"
        raise InvalidParameter(f"{wrong} for `appends` or `window`")
    axis = state.axis
    if axis is not None:
        rank = len(given.shape or ())
        if not -rank <= axis < rank:
            right = f"use {-rank}..{rank - 1}" if rank else "a scalar has none"
            raise InvalidParameter(f"axis is {axis}, of {given}; {right}")
        axis %= rank
    message = _misfit(output, given, axis)
    if message:
        raise InvalidParameter(message)
    if axis is not None:
        _require_room(state, axis, output, given)
    return replace(state, axis=axis)


def _require_room(state: State, axis: int, output: TensorDesc, given: TensorDesc) -> None:
    """Raise InvalidParameter if the entries that are kept along the axis can't be as many as the input takes."""
    made, taken = ((desc.shape or ())[axis] for desc in (output, given))
    if taken == UNKNOWN_DIM:
        return
    if state.window != taken:
        raise InvalidParameter(f"the window is {state.window}, but dimension {axis} of {given} is fixed; use {taken}")
    if not state.appends and made != UNKNOWN_DIM and made < taken:
        raise InvalidParameter(f"{output} has fewer entries along dimension {axis} than {given}; use `appends`")


def _misfit(output: TensorDesc, given: TensorDesc, axis: int | None = None) -> str:
    """Return why an output can't become an input, whatever their lengths along the axis; empty if it can."""
    if output.data_type is not given.data_type:
        return f"the output is {output}, the input {given}; their data types must be equal"
    made, taken = output.shape or (), given.shape or ()
    if len(made) != len(taken):
        return f"the output is {output}, the input {given}; they must have as many dimensions"
    for at, dims in enumerate(zip(made, taken, strict=True)):
        if at != axis and dims[0] != dims[1] and UNKNOWN_DIM not in dims:
            return f"the output is {output}, the input {given}; dimension {at} must be equal, or open in one of them"
    return ""


def _are_named_alike(given: str, output: str) -> bool:
    """Return whether the names say that an output is what an input becomes."""
    if given == output:
        return True
    before, after = _words(given), _words(output)
    if not _unmarked(before, _PAST).isdisjoint(_unmarked(after, _PRESENT)):
        return True
    common = _unmarked(after, _AFTER) & (_unmarked(before, _BEFORE) | {before})
    return any(_is_remembered(words) for words in common)


def _words(name: str) -> Words:
    """Return the words and numbers of a name in lower case, of which `past_key_values` is the word "past"."""
    words: list[str] = []
    for word in _WORD.findall(re.sub(r"(past|presents?)_key_values", r"\1", name)):
        words.extend(word if _TWO_LETTERS.fullmatch(word) else [word.lower()])
    return tuple(words)


def _unmarked(words: Words, marks: frozenset[str]) -> set[Words]:
    """Return what is left of a name without a mark; a name with several marks has several rests."""
    return {words[:at] + words[at + 1 :] for at, word in enumerate(words) if word in marks}


def _is_remembered(words: Words) -> bool:
    return any(word in _REMEMBERED or (len(word) == 1 and word.isalpha()) for word in words)
