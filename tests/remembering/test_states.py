"""States of models: which outputs become which inputs, by their names or as told."""

import re

import numpy as np
import pytest

from nnrt_client import DataType, TensorDesc
from nnrt_client.sequences.states import State, checked_states, found_states, initial_value
from nnrt_hdi.errors import InvalidParameter

Dims = tuple[int, ...]


def desc(name: str, *shape: int, data_type: DataType = DataType.FLOAT32) -> TensorDesc:
    return TensorDesc(data_type, shape or None, name=name)


INPUTS = [desc("ids", -1, 1, data_type=DataType.INT64), desc("past", 1, 2, -1, 8), desc("ring", 1, 2, 16, 8)]
OUTPUTS = [desc("logits", -1, 1), desc("present", 1, 2, -1, 8), desc("step", 1, 2, 1, 8), desc("wide", 1, 2, -1, 9)]


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.11.decoder.value", "present.11.decoder.value"),
        ("past_key_values.3.key", "present_key_values.3.key"),
        ("past.0.key", "present.0.key"),
        ("past_key_0", "present_key_0"),
        ("past_value_self_2", "present_value_self_2"),
        ("past_0", "present_0"),
        ("past_conv.0", "present_conv.0"),
        ("past", "presents"),
        ("h", "hn"),
        ("c0", "cn"),
        ("h_0", "h_n"),
        ("h_0", "h_out_0"),
        ("h_in", "h_out"),
        ("x_in", "x_out"),
        ("state", "stateN"),
        ("state", "next_state"),
        ("state", "state_out"),
        ("prevState", "newState"),
        ("hidden", "new_hidden"),
        ("cached_key_0", "new_cached_key_0"),
        ("cache_last_channel", "cache_last_channel_next"),
        ("att_cache", "r_att_cache"),
        ("memory", "memory"),
    ],
)
def test_a_state_is_found_by_its_name(given: str, output: str) -> None:
    inputs, outputs = [desc("x", 1, 4), desc(given, 2, -1, 8)], [desc("y", 1, 4), desc(output, 2, -1, 8)]
    assert found_states(inputs, outputs) == {output: State(given)}


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ("input", "output"),
        ("input_0", "output_0"),
        ("image_in", "image_out"),
        ("input_ids", "output_ids"),
        ("input_ids", "logits"),
        ("in", "out"),
        ("past.0.key", "present.0.value"),
        ("past.1.key", "present.0.key"),
        ("past.1", "past"),
        ("h", "cn"),
        ("state", "state_in"),
    ],
)
def test_other_names_mean_no_state(given: str, output: str) -> None:
    assert found_states([desc(given, 2, -1, 8)], [desc(output, 2, -1, 8)]) == {}


@pytest.mark.parametrize(
    ("taken", "made", "is_found"),
    [
        ((1, 2, -1, 8), (1, 2, -1, 8), True),
        ((-1, 2, 16, 8), (1, -1, 16, -1), True),
        ((), (), True),
        ((1, 2, 511, 8), (1, 2, 512, 8), False),
        ((1, 2, 8), (1, 2, 1, 8), False),
    ],
)
def test_shapes_may_differ_where_one_is_open(taken: Dims, made: Dims, is_found: bool) -> None:
    assert bool(found_states([desc("past", *taken)], [desc("present", *made)])) is is_found


def test_data_types_are_equal() -> None:
    assert not found_states([desc("past", 2, data_type=DataType.FLOAT16)], [desc("present", 2)])


def test_what_is_ambiguous_is_not_guessed() -> None:
    both = [desc("h", 1, 4), desc("h_in", 1, 4), desc("c", 1, 4)]
    assert found_states(both, [desc("hn", 1, 4), desc("cn", 1, 4)]) == {"cn": State("c")}
    assert found_states([desc("h", 1, 4)], [desc("hn", 1, 4), desc("new_h", 1, 4)]) == {}
    # Only one of them fits.
    assert found_states([desc("h", 1, 5), desc("h_in", 1, 4)], [desc("hn", 1, 4)]) == {"hn": State("h_in")}


def test_layers_of_a_decoder() -> None:
    names = [f"{layer}.{kind}" for layer in range(12) for kind in ("key", "value")]
    past = [desc(f"past_key_values.{name}", -1, 2, -1, 8) for name in names]
    present = [desc(f"present.{name}", -1, 2, -1, 8) for name in reversed(names)]
    found = found_states([desc("input_ids", -1, -1), *past], [desc("logits", -1, -1, 40), *present])
    assert found == {f"present.{name}": State(f"past_key_values.{name}") for name in names}


@pytest.mark.parametrize(
    ("output", "told", "kept"),
    [
        ("present", "past", State("past")),
        ("present", State("past"), State("past")),
        ("present", State("past", axis=2, window=4), State("past", 2, window=4)),
        ("present", State("ring", axis=-2, window=16), State("ring", 2, window=16)),
        ("step", State("past", axis=-2, appends=True), State("past", 2, appends=True)),
        ("step", State("ring", axis=2, appends=True, window=16), State("ring", 2, appends=True, window=16)),
        ("wide", State("past", axis=3, window=8), State("past", 3, window=8)),
    ],
)
def test_a_state_is_told(output: str, told: str | State, kept: State) -> None:
    assert checked_states({output: told}, INPUTS, OUTPUTS) == {output: kept}


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ({"presnt": "past"}, "no output 'presnt'; its outputs are logits, present, step, wide"),
        ({"present": "pst"}, "no input 'pst'; its inputs are ids, past, ring"),
        ({"present": "past", "step": State("past", 2, True)}, "the state of 'present' and of 'step'"),
        ({"logits": "ids"}, "their data types must be equal"),
        ({"logits": "past"}, "they must have as many dimensions"),
        ({"wide": "past"}, "dimension 3 must be equal, or open in one"),
        ({"step": "ring"}, "state 'step' of input 'ring': .* dimension 2 must be equal"),
        ({"step": State("past", 4, True)}, "axis is 4, of FLOAT32.*; use -4..3"),
        ({"step": State("past", -5, True)}, "axis is -5"),
        ({"step": State("past", 2, True, -1)}, "the window is -1; use 1 or more"),
        ({"step": State("past", appends=True)}, "there is no axis; give the dimension"),
        ({"present": State("past", window=3)}, "there is no axis; give the dimension"),
        ({"present": State("past", axis=2)}, "axis is 2; leave it None"),
        ({"step": State("ring", 2, True)}, "the window is 0, but dimension 2 of .* is fixed; use 16"),
        ({"present": State("ring", 2, window=8)}, "the window is 8, but dimension 2 of .* is fixed; use 16"),
        ({"step": State("ring", 2, window=16)}, "fewer entries along dimension 2 than .*; use `appends`"),
        ({"wide": State("past", 2, True)}, "dimension 3 must be equal"),
    ],
)
def test_a_state_that_cannot_be_kept(states: dict[str, str | State], message: str) -> None:
    with pytest.raises(InvalidParameter, match=re.compile(message)):
        checked_states(states, INPUTS, OUTPUTS)


@pytest.mark.parametrize(
    ("dims", "shape"), [((-1, 2, -1, 8), (1, 2, 0, 8)), ((2, -1, 64), (2, 0, 64)), ((2, 1, 64), (2, 1, 64)), ((), ())]
)
def test_a_value_begins_as_zeros(dims: Dims, shape: Dims) -> None:
    value = initial_value(desc("past", *dims, data_type=DataType.FLOAT16))
    assert (value.shape, value.dtype) == (shape, np.dtype(np.float16))
    assert not value.any()
