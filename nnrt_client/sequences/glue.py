"""Glue: small models that choose the next token from logits, and so make the inputs of a model's next run.

A loop runs a model and its glue in turn, wired by names. The glue reads the model's logits, and the inputs of the last
run that grow or count. It makes the next ones under the same names. Each row of a batch is computed for itself.

    loop(inputs, glue=greedy(session, stop_token=2), deliver=["input_ids"], max_steps=100)
    loop({**inputs, **uniforms(seed=7, steps=100)}, glue=sample(session, top_p=0.9), ...)
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from nnrt_client.enums import DataType, OperationType
from nnrt_client.model.model import Model, ModelTensor
from nnrt_client.sequences.states import named
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import UNKNOWN_DIM, Array

# Names of the values that only the glue reads and makes.
RANDOM, STEP, STOP = "random", "step", "stop"
_MASK, _POSITIONS = "attention_mask", "position_ids"
# The most elements of which one matrix product makes running sums.
_WIDTH = 256
_INDICES = (DataType.INT32, DataType.INT64)
_FLOATS = (DataType.FLOAT32, DataType.FLOAT16, DataType.FLOAT64)
_MASKS = (*_INDICES, *_FLOATS, DataType.BOOL)
_ON_OFF = np.array(True), np.array(False)
_LEAST_TEMPERATURE = float(np.finfo(np.float32).tiny)


class DescribedModel(Protocol):
    """Descriptions of a model's inputs and outputs: a ModelSession has them."""

    @property
    def inputs(self) -> Sequence[TensorDesc]:
        """Inputs of a run."""

    @property
    def outputs(self) -> Sequence[TensorDesc]:
        """Outputs of a run."""


def greedy(
    model: DescribedModel,
    *,
    logits: str = "logits",
    tokens: str = "input_ids",
    mask: str | None = _MASK,
    positions: str | None = _POSITIONS,
    stop_token: int | Sequence[int] | None = None,
) -> Model:
    """Return glue that takes the most likely token after the last step; of equally likely ones the first.

    Prompts of unequal length in one batch must be padded at their beginning.

    Args:
        model: The model whose runs it stands between.
        logits: Output with the logits: [batch, steps, vocabulary] or [batch, vocabulary].
        tokens: Input that gets the token, as [batch, 1] or [batch].
        mask: Input [batch, length] that gets one more column of ones. None, or a model without it: there is none.
        positions: Input that gets its last column plus 1, as [batch, 1]; or, if it is [batch], the position of each
            row's first token, which grows by the number of tokens. None likewise.
        stop_token: Token, or tokens, that end a row: then the value `stop`, BOOL [batch], is true from there on, and
            the row gets that token again (the first of several). `stop` is also an input, and false in the beginning.

    Raises:
        InvalidParameter: The model has no such input or output, or it has another data type or shape.
    """
    glue = _Glue(model, logits, tokens)
    token = glue.likeliest()
    return glue.finished(token, mask, positions, stop_token)


def sample(
    model: DescribedModel,
    *,
    top_k: int | None = 50,
    top_p: float = 1.0,
    temperature: float = 1.0,
    logits: str = "logits",
    tokens: str = "input_ids",
    mask: str | None = _MASK,
    positions: str | None = _POSITIONS,
    stop_token: int | Sequence[int] | None = None,
) -> Model:
    """Return glue that draws a token after the last step by the numbers of `uniforms`; the same ones draw the same.

    It reads the values `random` and `step`, and makes the next `step`. A run with no number left fails.

    Args:
        model: The model whose runs it stands between.
        top_k: How many of the most likely tokens may be drawn, at most all; None for all.
        top_p: Probability that the tokens which may be drawn have together at least, the most likely first.
        temperature: Number that logits are divided by: the closer to 0, the more often the most likely token comes.
        logits: As of `greedy`.
        tokens: As of `greedy`.
        mask: As of `greedy`.
        positions: As of `greedy`.
        stop_token: As of `greedy`.

    Raises:
        InvalidParameter: A number is out of its range, or as for `greedy`.
    """
    _require_sound(top_k, top_p, temperature)
    glue = _Glue(model, logits, tokens)
    token = glue.drawn(top_k, top_p, temperature)
    return glue.finished(token, mask, positions, stop_token)


def uniforms(seed: int, steps: int, batch: int = 1) -> dict[str, Array]:
    """Return the values `random` and `step` with which `sample` draws tokens for this many steps.

    Each row of the batch has numbers of its own, which depend only on the seed and the row's index. They are the same
    in all versions and on all machines: the upper 24 bits of numpy's PCG64, as fractions.

    Raises:
        InvalidParameter: The seed is negative, or there are no steps or rows.
    """
    for name, number, least in (("seed", seed, 0), ("steps", steps, 1), ("batch", batch, 1)):
        if number < least:
            raise InvalidParameter(f"{name} is {number}; use {least} or more")
    # Numpy promises that a bit generator keeps its numbers, but not how Generator makes floats of them.
    rows = [np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(row,))).random_raw(steps) for row in range(batch)]
    return {
        RANDOM: (np.stack(rows) >> np.uint64(40)).astype(np.float32) * np.float32(2**-24),
        STEP: np.zeros(batch, np.int64),
    }


class _Glue:
    """Glue under construction. Its inputs and outputs are named like the values that they are."""

    def __init__(self, model: DescribedModel, logits: str, tokens: str) -> None:
        """Begin with the logits of the last step. Raise InvalidParameter for a wrong model."""
        self._model = Model("glue")
        self._given = {desc.name: desc for desc in model.inputs}
        self._inputs: list[ModelTensor] = []
        self._outputs: list[ModelTensor] = []
        self._tokens = _of(self._given, "input", tokens, _INDICES, ranks=(1, 2))
        made = _of({desc.name: desc for desc in model.outputs}, "output", logits, _FLOATS, ranks=(2, 3))
        given = self._input(logits, made.data_type, (made.shape or ())[1:])
        # The logits that have steps, of a run that may have several.
        self._of_steps = given if len(made.shape or ()) == 3 else None
        self.logits = given if self._of_steps is None else self._last(given)

    def likeliest(self) -> ModelTensor:
        """Return the most likely token of each row [batch]."""
        return self._apply(OperationType.ARG_MAX, self.logits, axis=-1, output=TensorDesc(self._tokens.data_type, [-1]))

    def drawn(self, top_k: int | None, top_p: float, temperature: float) -> ModelTensor:
        """Return a token for each row [batch], drawn from the most likely ones by the row's next number."""
        count = self._at_most(top_k)
        x = self._cast(self.logits, DataType.FLOAT32)
        scores, ids = self._model.apply(OperationType.TOP_K, x, count, axis=-1)
        # Without the largest one subtracted, a quotient could be infinite.
        best = self._apply(OperationType.REDUCE_MAX, scores, [1], keep_dims=True)
        scores = self._apply(OperationType.DIV, self._apply(OperationType.SUB, scores, best), temperature)
        chances = self._apply(OperationType.SOFTMAX, scores, axis=-1)
        sums = self._running_sums(chances, count)
        # Tokens that may be drawn come first, because the chances are sorted.
        may_be = self._apply(OperationType.GREATER, chances, 0.0)
        if top_p < 1:
            before = self._apply(OperationType.SUB, sums, chances)
            may_be = self._apply(OperationType.LOGICAL_AND, may_be, self._apply(OperationType.LESS, before, top_p))
        total = self._apply(OperationType.REDUCE_MAX, self._where(may_be, sums, 0.0), [1], keep_dims=True)
        drawn = self._apply(OperationType.MUL, total, self._next_uniform())
        passed = self._apply(OperationType.LESS_EQUAL, sums, drawn)
        # Rounding may let a number near 1 pass all sums.
        last = self._apply(OperationType.SUB, self._count(may_be), 1)
        place = self._apply(OperationType.MINIMUM, self._count(passed), last)
        is_place = self._apply(OperationType.ONE_HOT, place, count, *_ON_OFF)
        token = self._apply(OperationType.REDUCE_SUM, self._where(is_place, ids, 0), [1])
        return self._cast(token, self._tokens.data_type)

    def finished(
        self, token: ModelTensor, mask: str | None, positions: str | None, stop_token: int | Sequence[int] | None
    ) -> Model:
        """Add the token [batch] and what else the next run takes, and finish the model."""
        if stop_token is not None:
            token = self._stopped(token, stop_token)
        self._output(token, self._tokens)
        if mask is not None and self._has(mask, _MASK):
            self._append_one(mask)
        if positions is not None and self._has(positions, _POSITIONS):
            self._advance(positions)
        self._model.specify_inputs_and_outputs(self._inputs, self._outputs)
        self._model.finish()
        return self._model

    def _at_most(self, top_k: int | None) -> int:
        """Return how many tokens may be drawn."""
        vocabulary = (self.logits.desc.shape or ())[-1]
        if vocabulary != UNKNOWN_DIM:
            return min(top_k or vocabulary, vocabulary)
        if top_k is None:
            raise InvalidParameter("top_k is None, but how many tokens there are is known only in a run; give a number")
        return top_k

    def _stopped(self, token: ModelTensor, stop_token: int | Sequence[int]) -> ModelTensor:
        """Add the value `stop`, and return the tokens of which those of ended rows are the first stop token."""
        stops = np.atleast_1d(np.asarray(stop_token))
        limits = np.iinfo(self._tokens.data_type.name.lower())
        if not stops.size or stops.dtype.kind not in "iu" or stops.min() < 0 or stops.max() > limits.max:
            raise InvalidParameter(f"stop_token is {stop_token!r}; give one or more tokens: 0..{limits.max}")
        ended = self._input(STOP, DataType.BOOL)
        token = self._where(ended, int(stops[0]), token)
        column = self._apply(OperationType.UNSQUEEZE, token, axis=[1])
        is_other = self._apply(OperationType.NOT_EQUAL, column, [stops.tolist()])
        ends = self._apply(OperationType.LOGICAL_NOT, self._apply(OperationType.ALL, is_other, [1]))
        self._outputs.append(self._apply(OperationType.LOGICAL_OR, ended, ends, name=STOP))
        return token

    def _append_one(self, name: str) -> None:
        """Add a mask that is one longer."""
        desc = _of(self._given, "input", name, _MASKS, ranks=(2,))
        if (desc.shape or ())[1] != UNKNOWN_DIM:
            raise InvalidParameter(f"{name!r} is {desc}, to which nothing can be appended; give mask=None")
        mask = self._input(name, desc.data_type, (UNKNOWN_DIM,))
        longer = self._apply(OperationType.PAD, mask, [[0, 0], [0, 1]], constant_value=1, name=name)
        self._outputs.append(longer)

    def _advance(self, name: str) -> None:
        """Add positions: of tokens, the last one plus 1; of first tokens, theirs plus the number of tokens."""
        desc = _of(self._given, "input", name, _INDICES, ranks=(1, 2))
        last = self._input(name, desc.data_type, (desc.shape or ())[1:])
        steps: ModelTensor | int = 1
        if len(desc.shape or ()) == 2:
            last = self._last(last)
        elif self._of_steps is not None:
            shape = self._apply(OperationType.SHAPE, self._of_steps)
            steps = self._cast(self._apply(OperationType.STRIDED_SLICE, shape, [1], [2], [1]), desc.data_type)
        self._output(self._apply(OperationType.ADD, last, steps), desc)

    def _next_uniform(self) -> ModelTensor:
        """Return the number of this step [batch, 1], and add the value `step` of the next one."""
        numbers, step = self._input(RANDOM, DataType.FLOAT32, (UNKNOWN_DIM,)), self._input(STEP, DataType.INT64)
        count = self._apply(OperationType.STRIDED_SLICE, self._apply(OperationType.SHAPE, numbers), [1], [2], [1])
        is_left = self._apply(OperationType.LESS, step, self._cast(count, DataType.INT64))
        is_left = self._apply(OperationType.ASSERT, is_left, step, summarize=1, name="a number in `random` for `step`")
        # Computed with the assertion's result, so that it is checked: a true one counts 1.
        following = self._apply(OperationType.ADD, step, self._cast(is_left, DataType.INT64), name=STEP)
        self._outputs.append(following)
        is_now = self._apply(OperationType.ONE_HOT, step, count, *_ON_OFF)
        return self._apply(OperationType.REDUCE_SUM, self._where(is_now, numbers, 0.0), [1], keep_dims=True)

    def _running_sums(self, x: ModelTensor, count: int) -> ModelTensor:
        """Return y[:, i] = the sum of x[:, 0..i], by products with triangles of ones: of blocks, if x is wide."""
        if count <= _WIDTH:
            return self._apply(OperationType.MATMUL, x, _triangle(count))
        blocks = math.ceil(count / _WIDTH)
        x = self._apply(OperationType.PAD, x, [[0, 0], [0, blocks * _WIDTH - count]])
        x = self._apply(OperationType.RESHAPE, x, [-1, blocks, _WIDTH])
        within = self._apply(OperationType.MATMUL, x, _triangle(_WIDTH))
        totals = self._apply(OperationType.REDUCE_SUM, x, [2])
        before = self._apply(OperationType.SUB, self._running_sums(totals, blocks), totals)
        sums = self._apply(OperationType.ADD, within, self._apply(OperationType.UNSQUEEZE, before, axis=[2]))
        sums = self._apply(OperationType.RESHAPE, sums, [-1, blocks * _WIDTH])
        return self._apply(OperationType.SLICE, sums, [0], [count], axes=[1])

    def _count(self, truths: ModelTensor) -> ModelTensor:
        """Return how many are true in each row: INT32 [batch]."""
        return self._apply(OperationType.REDUCE_SUM, self._cast(truths, DataType.INT32), [1])

    def _apply(
        self, type: OperationType, *operands: ModelTensor | ArrayLike, name: str = "", **parameters: Any
    ) -> ModelTensor:
        """Append an operation with one output."""
        return self._model.apply(type, *operands, name=name, **parameters)

    def _where(self, condition: ModelTensor, a: ModelTensor | ArrayLike, b: ModelTensor | ArrayLike) -> ModelTensor:
        return self._apply(OperationType.WHERE, condition, a, b)

    def _cast(self, x: ModelTensor, data_type: DataType) -> ModelTensor:
        if x.desc.data_type is data_type:
            return x
        return self._apply(OperationType.CAST, x, np.array(int(data_type), np.int32))

    def _last(self, x: ModelTensor) -> ModelTensor:
        """Return the last entry of dimension 1, which goes away."""
        ends = [0, -1], [0, 0], [1, 1]
        return self._apply(OperationType.STRIDED_SLICE, x, *ends, begin_mask=1, end_mask=1, shrink_axis_mask=2)

    def _has(self, name: str, usual: str) -> bool:
        """Return whether the model has an input. One that is not called as usual must exist, which is checked later."""
        return name in self._given or name != usual

    def _input(self, name: str, data_type: DataType, rest: Sequence[int] = ()) -> ModelTensor:
        """Add an input with an open dimension for the rows, and others."""
        self._inputs.append(self._model.input((UNKNOWN_DIM, *rest), data_type, name=name))
        return self._inputs[-1]

    def _output(self, rows: ModelTensor, desc: TensorDesc) -> None:
        """Add a number for each row [batch] as an output that an input of the model takes."""
        shape = desc.shape or ()
        if shape[1:] not in ((), (1,), (UNKNOWN_DIM,)):
            raise InvalidParameter(f"input {desc.name!r} is {desc}, but gets one step; make dimension 1 open, or 1")
        made = self._apply(OperationType.RESHAPE, rows, [-1, *(1 for _ in shape[1:])], name=desc.name)
        self._outputs.append(made)


def _triangle(count: int) -> Array:
    """Return a matrix by which products are running sums: column i has ones in the rows 0..i."""
    return np.triu(np.ones((count, count), np.float32))


def _of(
    descs: Mapping[str, TensorDesc], what: str, name: str, types: Collection[DataType], ranks: Collection[int]
) -> TensorDesc:
    """Return a description by name. Raise InvalidParameter if there is none, or it has another type or rank."""
    desc = named(what, name, descs)
    if desc.data_type not in types or len(desc.shape or ()) not in ranks:
        names = ", ".join(data_type.name for data_type in types)
        right = f"use {' or '.join(map(str, ranks))} dimensions of {names}"
        raise InvalidParameter(f"{what} {name!r} is {desc}; {right}")
    return desc


def _require_sound(top_k: int | None, top_p: float, temperature: float) -> None:
    if top_k is not None and top_k < 1:
        raise InvalidParameter(f"top_k is {top_k}; use 1 or more tokens, or None for all")
    if not 0 < top_p <= 1:
        raise InvalidParameter(f"top_p is {top_p}; use more than 0, up to 1")
    if not _LEAST_TEMPERATURE <= temperature < math.inf:
        raise InvalidParameter(f"temperature is {temperature}; use more than 0, or `greedy` for 0")
