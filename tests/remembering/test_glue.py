"""Glue on devices, against numpy: the tokens that it chooses, and the inputs that it makes for the next run."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples_of
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from nnrt_client import Batching, DataType, Model, ModelSession, OperationType, Runtime, TensorDesc, load
from nnrt_client.sequences.glue import greedy, sample, uniforms
from nnrt_client.sequences.states import State, checked_states, found_states, initial_value
from nnrt_hdi.errors import InvalidParameter, OperationFailed

Values = dict[str, NDArray[Any]]
INDEX = DataType.INT64
# The largest number that `uniforms` makes.
HIGHEST = 1 - 2**-24


@dataclass(frozen=True)
class Decoder:
    """Inputs and outputs of a decoder, by name."""

    logits: tuple[int, ...] = (-1, -1, -1)
    tokens: tuple[int, ...] = (-1, -1)
    data_type: DataType = INDEX
    logits_type: DataType = DataType.FLOAT32
    others: Sequence[TensorDesc] = ()

    @property
    def inputs(self) -> list[TensorDesc]:
        return [TensorDesc(self.data_type, self.tokens, name="input_ids"), *self.others]

    @property
    def outputs(self) -> list[TensorDesc]:
        return [TensorDesc(self.logits_type, self.logits, name="logits")]


def usual(mask: DataType = INDEX, positions: tuple[int, ...] = (-1, -1), vocabulary: int = -1) -> Decoder:
    """Return a decoder with a mask and positions."""
    others = [TensorDesc(mask, (-1, -1), name="attention_mask"), TensorDesc(INDEX, positions, name="position_ids")]
    return Decoder((-1, -1, vocabulary), others=others)


Ready = Callable[[Model], ModelSession]


@pytest.fixture
def ready(each_runtime: Runtime, closing: ExitStack) -> Ready:
    """Return a function that loads glue onto each device."""
    return lambda glue: closing.enter_context(load(glue, device=each_runtime.device()))


def logits_of(batch: int, *rest: int, seed: int = 0) -> NDArray[Any]:
    return np.random.default_rng(seed).normal(0, 3, (batch, *rest)).astype("f4")


# ---- the likeliest token


@pytest.mark.parametrize(("data_type", "logits_type"), [(DataType.INT32, "f2"), (DataType.INT64, "f4")])
def test_the_first_of_the_likeliest(ready: Ready, data_type: DataType, logits_type: str) -> None:
    elements = st.sampled_from([-np.inf, -2.0, 0.0, 0.5, 3.0])  # With many ties.
    decoder = Decoder(data_type=data_type, logits_type=DataType.FLOAT16 if logits_type == "f2" else DataType.FLOAT32)
    session = ready(greedy(decoder))

    @given(arrays(logits_type, array_shapes(min_dims=3, max_dims=3, max_side=9), elements=elements))
    @examples_of(max_examples=15)
    def check(logits: NDArray[Any]) -> None:
        token = session.run({"logits": logits})["input_ids"]
        assert token.dtype == data_type.name.lower()
        assert token.tolist() == logits[:, -1].argmax(-1)[:, None].tolist()

    check()


def test_logits_without_steps_and_tokens_without_columns(ready: Ready) -> None:
    session = ready(greedy(Decoder((-1, 7), (-1,))))
    logits = logits_of(5, 7)
    assert session.run({"logits": logits})["input_ids"].tolist() == logits.argmax(-1).tolist()
    assert session.inputs == (TensorDesc(DataType.FLOAT32, (-1, 7), name="logits"),)
    assert session.outputs == (TensorDesc(INDEX, (-1,), name="input_ids"),)


def test_names_of_the_model(ready: Ready) -> None:
    class Named:
        inputs = (
            TensorDesc(INDEX, (1, 1), name="ids"),
            TensorDesc(DataType.FLOAT32, (-1, -1), name="m"),
            TensorDesc(DataType.INT32, (-1,), name="p"),
        )
        outputs = (TensorDesc(DataType.FLOAT32, (-1, 3), name="scores"),)

    session = ready(greedy(Named(), logits="scores", tokens="ids", mask="m", positions="p"))
    made = session.run({"scores": np.array([[0, 2, 1]], "f4"), "m": np.zeros((1, 2), "f4"), "p": np.array([4], "i4")})
    assert {name: value.tolist() for name, value in made.items()} == {"ids": [[1]], "m": [[0, 0, 1]], "p": [5]}
    without = ready(greedy(Named(), logits="scores", tokens="ids", mask=None, positions=None))
    assert [desc.name for desc in without.outputs] == ["ids"]


# ---- the inputs of the next run


@pytest.mark.parametrize("mask", [DataType.INT64, DataType.BOOL])
def test_mask_and_positions(ready: Ready, mask: DataType) -> None:
    session = ready(greedy(usual(mask)))
    given_mask = np.array([[0, 1, 1], [1, 1, 1]]).astype(mask.name.lower())
    made = session.run(
        {"logits": logits_of(2, 3, 5), "attention_mask": given_mask, "position_ids": np.array([[0, 0, 1], [0, 1, 2]])}
    )
    assert made["attention_mask"].dtype == given_mask.dtype
    assert made["attention_mask"].tolist() == [[0, 1, 1, 1], [1, 1, 1, 1]]
    assert made["position_ids"].tolist() == [[2], [3]]


def test_a_loop_goes_on_until_all_rows_have_stopped(ready: Ready) -> None:
    session = ready(greedy(usual(), stop_token=[3, 5]))
    wanted = np.array([[1, 5, 6, 7], [0, 2, 3, 1]])  # Tokens of the steps, by row.
    values: Values = {
        "attention_mask": np.ones((2, 4), "i8"),
        "position_ids": np.arange(4)[None].repeat(2, 0),
        "stop": np.zeros(1, "?"),  # One for all rows.
    }
    steps = []
    for step in range(4):
        logits = np.eye(8, dtype="f4")[wanted[:, step]][:, None]
        values = dict(session.run({"logits": logits, **values}))
        steps.append((values.pop("input_ids")[:, 0].tolist(), values["stop"].tolist()))
    assert steps == [
        ([1, 0], [False, False]),
        ([5, 2], [True, False]),
        ([3, 3], [True, True]),  # Of stop tokens a row that has ended repeats the first.
        ([3, 3], [True, True]),
    ]
    assert values["attention_mask"].shape == (2, 8)
    assert values["position_ids"].tolist() == [[7], [7]]


# ---- a model and its glue

VOCABULARY, WIDTH = 20, 6
TABLE, PLACES, OUT = (logits_of(*shape, seed=1) for shape in ((VOCABULARY, WIDTH), (32, WIDTH), (WIDTH, VOCABULARY)))


def small_decoder() -> Model:
    """Return a model that remembers the embeddings of all tokens, and predicts from their sum and the position."""
    m = Model()
    ids, mask, places = (
        m.input((-1, -1), INDEX, name=name) for name in ("input_ids", "attention_mask", "position_ids")
    )
    past = m.input((-1, -1, WIDTH), name="past_key_values.0.key")
    embedded = m.apply(OperationType.GATHER, TABLE, ids, 0)
    present = m.apply(OperationType.CONCAT, past, embedded, axis=1, name="present.0.key")
    weights = m.apply(OperationType.CAST, mask, np.array(int(DataType.FLOAT32), "i4"))
    seen = m.apply(OperationType.MUL, present, m.apply(OperationType.UNSQUEEZE, weights, axis=[2]))
    total = m.apply(OperationType.REDUCE_SUM, seen, [1], keep_dims=True)
    y = m.apply(OperationType.ADD, m.apply(OperationType.GATHER, PLACES, places, 0), total)
    logits = m.apply(OperationType.MATMUL, y, OUT, name="logits")
    m.specify_inputs_and_outputs([ids, mask, places, past], [logits, present])
    m.finish()
    return m


def test_a_model_and_its_glue_generate(ready: Ready) -> None:
    session = ready(small_decoder())
    states = checked_states(found_states(session.inputs, session.outputs), session.inputs, session.outputs)
    assert states == {"present.0.key": State("past_key_values.0.key")}
    glue = ready(greedy(session))
    values: Values = {desc.name: initial_value(desc) for desc in session.inputs}
    prompt = [3, 1, 4]
    values |= {
        "input_ids": np.array([prompt]),
        "attention_mask": np.ones((1, 3), "i8"),
        "position_ids": np.array([[0, 1, 2]]),
    }
    tokens = list(prompt)
    for _ in range(5):
        made = session.run(values)
        values |= {state.input: made[output] for output, state in states.items()}
        values |= glue.run({desc.name: {**values, **made}[desc.name] for desc in glue.inputs})
        expected = (TABLE[tokens].sum(0) + PLACES[len(tokens) - 1]) @ OUT
        tokens.append(int(values["input_ids"].item()))
        assert tokens[-1] == expected.argmax()


# ---- drawn tokens


def possible(logits: NDArray[Any], u: float, top_k: int | None, top_p: float, temperature: float) -> set[int]:
    """Return the tokens that a number may draw, of which rounding decides if there are several."""
    slack = 1e-5
    scaled = logits.astype("f8")
    order = np.argsort(-scaled, kind="stable")[: top_k or scaled.size]
    chances = np.exp((scaled[order] - scaled.max()) / temperature)
    chances /= chances.sum()
    sums = chances.cumsum()
    tokens: set[int] = set()
    for limit in {top_p} if top_p == 1 else {top_p - slack, top_p + slack}:
        may_be = (sums - chances < limit) & (chances > 0)
        may_be[0] = True
        aim = u * chances[may_be].sum()
        tokens.update(order[may_be & (sums - chances <= aim + slack) & (aim < sums + slack)].tolist())
    return tokens


OPTIONS: list[tuple[int, dict[str, Any]]] = [
    (12, {"top_k": None}),
    (12, {"top_k": 5, "top_p": 0.8, "temperature": 0.5}),
    (12, {"top_k": 50, "top_p": 0.3}),  # Of more tokens than there are.
    (700, {"top_k": None, "top_p": 0.9, "temperature": 1.5}),  # Their sums are made of blocks.
]


@pytest.mark.parametrize(("vocabulary", "options"), OPTIONS, ids=str)
def test_tokens_are_drawn_by_the_numbers(ready: Ready, vocabulary: int, options: dict[str, Any]) -> None:
    session = ready(sample(Decoder((-1, vocabulary)), **options))
    full = {"top_k": 50, "top_p": 1.0, "temperature": 1.0, **options}

    @given(st.integers(0, 2**32), st.lists(st.integers(0, 2**24 - 1), min_size=1, max_size=6), st.integers(0, 3))
    @examples_of(max_examples=15)
    def check(seed: int, numbers: list[int], step: int) -> None:
        logits = logits_of(len(numbers), vocabulary, seed=seed).round(seed % 3)  # Some with ties.
        random = np.zeros((len(numbers), 4), "f4")
        random[:, step] = np.array(numbers, "f4") * np.float32(2**-24)
        steps = np.full(len(numbers), step)
        made = session.run({"logits": logits, "random": random, "step": steps})
        assert made["step"].tolist() == [step + 1] * len(numbers)
        for row, (token,) in enumerate(made["input_ids"].tolist()):
            assert token in possible(logits[row], float(random[row, step]), **full)

    check()


def test_tokens_come_as_often_as_they_are_likely(ready: Ready) -> None:
    chances, batch = np.array([0.15, 0.5, 0.05, 0.3]), 20_000
    session = ready(sample(Decoder((-1, -1, 4)), temperature=2.0))
    logits = np.tile(2 * np.log(chances).astype("f4"), (batch, 1, 1))
    numbers = {"random": uniforms(1, batch)["random"].reshape(batch, 1), "step": np.zeros(batch, "i8")}
    tokens = session.run({"logits": logits, **numbers})["input_ids"]
    np.testing.assert_allclose(np.bincount(tokens[:, 0]) / batch, chances, atol=0.01)


def test_the_least_chance_draws_the_likeliest(ready: Ready) -> None:
    logits = logits_of(8, 300)
    logits[:, ::2] = -np.inf
    numbers = {"random": np.full((8, 1), HIGHEST, "f4"), "step": np.zeros(8, "i8")}
    least: list[dict[str, Any]] = [{"temperature": 1e-30}, {"top_k": 1}, {"top_p": 1e-6}]
    for options in least:
        made = ready(sample(Decoder((-1, 300)), **options)).run({"logits": logits, **numbers})
        assert made["input_ids"][:, 0].tolist() == logits.argmax(-1).tolist()


def test_impossible_tokens_are_never_drawn(ready: Ready) -> None:
    session = ready(sample(Decoder((-1, 600)), top_k=None))
    logits = logits_of(40, 600)
    logits[:, ::3] = -np.inf
    random = np.array([[0.0], [HIGHEST]] * 20, "f4")
    made = session.run({"logits": logits, "random": random, "step": np.zeros(40, "i8")})
    assert (made["input_ids"] % 3).all()


def test_a_large_vocabulary(ready: Ready) -> None:
    session = ready(sample(Decoder((-1, -1, 32_000)), top_k=None, top_p=0.95))
    logits, numbers = logits_of(2, 3, 32_000), uniforms(5, 3, batch=2)
    tokens = session.run({"logits": logits, **numbers})["input_ids"][:, 0].tolist()
    for row, token in enumerate(tokens):
        assert token in possible(logits[row, -1], float(numbers["random"][row, 0]), None, 0.95, 1.0)


def test_a_generation_repeats_and_ends_with_its_numbers(ready: Ready) -> None:
    session = ready(sample(Decoder((-1, -1, 50)), stop_token=0))
    generations = []
    for _ in range(2):
        values: Values = {**uniforms(9, 4, batch=2), "stop": np.zeros(2, "?")}
        tokens = []
        for step in range(4):
            made = session.run({"logits": logits_of(2, 1, 50, seed=step), **values})
            tokens.append(made.pop("input_ids").tolist())
            values |= made
        generations.append(tokens)
    assert generations[0] == generations[1]
    with pytest.raises(OperationFailed, match=r"a number in `random` for `step`.* begins with 4"):
        session.run({"logits": logits_of(2, 1, 50), **values})


@pytest.mark.parametrize("kind", ["greedy", "sample"])
def test_rows_are_computed_for_themselves(kind: str, ready: Ready, each_runtime: Runtime) -> None:
    def make() -> Model:
        return (
            greedy(usual(), stop_token=1) if kind == "greedy" else sample(usual(vocabulary=600), top_k=None, top_p=0.9)
        )

    values: Values = {
        "logits": logits_of(3, 2, 600),
        "attention_mask": np.ones((3, 5), "i8"),
        "position_ids": np.array([[1, 2], [0, 1], [0, 0]]),
    }
    values |= {"stop": np.array([True, False, False])} if kind == "greedy" else uniforms(2, 6, batch=3)
    together = ready(make()).run(values)
    # A model whose rows are not apart is refused with batching.
    with load(make(), device=each_runtime.device(), batching=Batching(max_size=4)) as batched:
        for row in range(3):
            alone = batched.run({name: value[row : row + 1] for name, value in values.items()})
            assert {name: value.tolist() for name, value in alone.items()} == {
                name: value[row : row + 1].tolist() for name, value in together.items()
            }


# ---- the numbers, and what is refused


def test_numbers_never_change() -> None:
    numbers = uniforms(7, 4, batch=2)
    assert (numbers["random"] * 2**24).tolist() == [
        [13385855, 890767, 9921225, 14576467],
        [8062828, 998945, 3736100, 2240446],
    ]
    assert (numbers["random"].dtype, numbers["step"].dtype) == (np.dtype("f4"), np.dtype("i8"))
    assert numbers["step"].tolist() == [0, 0]
    more = uniforms(7, 1000, batch=3)["random"]
    assert more[:2, :4].tolist() == numbers["random"].tolist()
    assert 0 <= more.min() < 0.01 < 0.99 < more.max() < 1
    assert uniforms(8, 4)["random"].tolist() != numbers["random"][:1].tolist()


@pytest.mark.parametrize("arguments", [(-1, 4, 1), (0, 0, 1), (0, 4, 0)])
def test_numbers_that_cannot_be_made(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidParameter, match=r"is (-1|0); use [01] or more"):
        uniforms(*arguments)


@pytest.mark.parametrize(
    ("decoder", "options", "message"),
    [
        (Decoder(), {"logits": "scores"}, "no output 'scores'; its outputs are logits"),
        (Decoder(), {"tokens": "ids"}, "no input 'ids'; its inputs are input_ids"),
        (Decoder(), {"mask": "m"}, "no input 'm'"),
        (Decoder(), {"positions": "p"}, "no input 'p'"),
        (Decoder(logits=(-1,)), {}, "'logits' is FLOAT32.*; use 2 or 3 dimensions of FLOAT32, FLOAT16, FLOAT64"),
        (Decoder(logits_type=INDEX), {}, "'logits' is INT64"),
        (Decoder(data_type=DataType.FLOAT32), {}, "'input_ids' is FLOAT32.*; use 1 or 2 dimensions of INT32, INT64"),
        (Decoder(tokens=(1, 8)), {}, "'input_ids' is INT64.*, but gets one step; make dimension 1 open, or 1"),
        (usual(positions=(-1, -1, 3)), {}, "'position_ids' is"),
        (usual(positions=(-1, 2)), {}, "'position_ids' is INT64.*, but gets one step"),
        (
            Decoder(others=[TensorDesc(INDEX, (1, 512), name="attention_mask")]),
            {},
            "'attention_mask' is .*, to which nothing can be appended; give mask=None",
        ),
        (Decoder(), {"stop_token": -1}, "stop_token is -1; give one or more tokens: 0..9223372036854775807"),
        (Decoder(data_type=DataType.INT32), {"stop_token": 2**31}, "stop_token is 2147483648"),
        (Decoder(), {"stop_token": []}, r"stop_token is \[\]"),
    ],
)
def test_models_that_glue_does_not_fit(decoder: Decoder, options: dict[str, Any], message: str) -> None:
    for make in (greedy, sample):
        with pytest.raises(InvalidParameter, match=message):
            make(decoder, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k is 0; use 1 or more"),
        ({"top_k": None}, "top_k is None, but how many tokens there are is known only in a run"),
        ({"top_p": 0.0}, "top_p is 0.0; use more than 0, up to 1"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"top_p": float("nan")}, "top_p is nan"),
        ({"temperature": 0.0}, "temperature is 0.0; use more than 0, or `greedy`"),
        ({"temperature": float("inf")}, "temperature is inf"),
    ],
)
def test_options_that_are_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        sample(Decoder(), **options)


def test_more_tokens_than_the_logits_have(ready: Ready) -> None:
    session = ready(sample(Decoder((-1, -1)), top_k=9))
    with pytest.raises(InvalidParameter, match="k is 9, of what dimension 1"):
        session.run({"logits": logits_of(1, 8), **uniforms(0, 1)})
