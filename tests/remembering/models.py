"""Models with a state, and what they compute, in numpy."""

import numpy as np
from numpy.typing import NDArray

from nnrt_client import Batching, Model, OperationType

WIDTH = 4
Rows = NDArray[np.float32]


def growing_model() -> Model:
    """Build a model whose cache grows by x in each run, and whose y is the sum of the cache."""
    model = Model()
    x = model.input((-1, -1, WIDTH), name="x")
    past = model.input((-1, -1, WIDTH), name="past")
    present = model.apply(OperationType.CONCAT, past, x, axis=1, name="present")
    total = model.apply(OperationType.REDUCE_SUM, present, np.array([1]), keep_dims=False, name="y")
    model.specify_inputs_and_outputs([x, past], [total, present])
    model.finish()
    return model


def counting_model() -> Model:
    """Build a model whose state of fixed size is multiplied by 1/2 and to which x is added; y is the state."""
    model = Model()
    x = model.input((-1, WIDTH), name="x")
    state = model.input((-1, WIDTH), name="state")
    half = model.apply(OperationType.MUL, state, np.array(0.5, np.float32))
    new = model.apply(OperationType.ADD, half, x, name="new_state")
    y = model.apply(OperationType.ADD, new, np.array(1.0, np.float32), name="y")
    model.specify_inputs_and_outputs([x, state], [y, new])
    model.finish()
    return model


def rows(seed: int, count: int = 1) -> Rows:
    """Return an x of `growing_model`."""
    return np.random.default_rng(seed).standard_normal((1, count, WIDTH), np.float32)


UP_TO_16 = Batching(max_size=16, max_delay_us=20_000)
