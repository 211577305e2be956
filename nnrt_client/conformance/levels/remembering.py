"""Small models with a state, and their glue, with which the level `sequences` tries a device.

The same device computes the right answers, in runs that get their states from the kit. So they are right to the bit.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Items
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnrt_client.conformance.levels.check import NotOffered, require
from nnrt_client.conformance.target import Connection, Prepared, Target, first_reason
from nnrt_client.enums import DataType, OperationType
from nnrt_client.model.model import Model, parts_of
from nnrt_client.run.model_dispatcher import ModelDispatcher
from nnrt_client.sequences.home import Home, Limits, LoopedRun, arrived
from nnrt_client.sequences.sequence import Sequence
from nnrt_client.session.errands import call_in_worker
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi import wire
from nnrt_hdi.sequences import FEATURE, Keeping
from nnrt_hdi.tensor import UNKNOWN_DIM, Array

ROWS, COLUMNS = 4, 64
# Of `adding`: an output that becomes an input.
ADDED = {"new_total": "total"}


def question(seed: int, rows: int = ROWS) -> Array:
    """Return random numbers from 1 to 2 with this number of rows."""
    return 1 + np.random.default_rng(seed).random((rows, COLUMNS), np.float32)


def adding(rows: int = ROWS) -> Model:
    """Return a model that adds x to its state `total`; y is twice as much."""
    model = Model("adding")
    x, total = model.input((rows, COLUMNS), name="x"), model.input((rows, COLUMNS), name="total")
    made = model.apply(OperationType.ADD, total, x, name="new_total")
    return _finished(model, [x, total], [model.apply(OperationType.ADD, made, made, name="y"), made])


def growing() -> Model:
    """Return a model whose state `past` gets the rows of x in addition."""
    model = Model("growing")
    x, past = model.input((UNKNOWN_DIM, COLUMNS), name="x"), model.input((UNKNOWN_DIM, COLUMNS), name="past")
    return _finished(model, [x, past], [model.apply(OperationType.CONCAT, past, x, axis=0, name="present")])


def appending(rows: int = ROWS) -> Model:
    """Return a model that makes the row `entry` of the row x, and adds x to all rows of `past`; -1 are any number."""
    model = Model("appending")
    x, past = model.input((1, COLUMNS), name="x"), model.input((rows, COLUMNS), name="past")
    y = model.apply(OperationType.ADD, past, x, name="y")
    return _finished(model, [x, past], [y, model.apply(OperationType.ADD, x, x, name="entry")])


def answering(part: float) -> Model:
    """Return glue for `adding`: the next x is a part of y, and `stop` is true where y is above `most`.

    The total grows for ever with a part of 1/4, and only changes its sign with -1.
    """
    model = Model("answering")
    y, most = model.input((ROWS, COLUMNS), name="y"), model.input((ROWS, COLUMNS), name="most")
    x = model.apply(OperationType.MUL, y, np.array(part, np.float32), name="x")
    return _finished(model, [y, most], [x, model.apply(OperationType.GREATER, y, most, name="stop")])


def speaking(words: int) -> Model:
    """Return a decoder: it adds the row of a table that the token names to its state; `logits` depend on that."""
    table = np.random.default_rng(words).standard_normal((words + 1, words), np.float32)
    model = Model("speaking")
    token, heard = model.input((1,), DataType.INT32, name="input_ids"), model.input((1, words), name="heard")
    row = model.apply(OperationType.GATHER, table[:-1], token, np.array(0, np.int32))
    made = model.apply(OperationType.ADD, heard, row, name="new_heard")
    return _finished(model, [token, heard], [model.apply(OperationType.MUL, made, table[-1:], name="logits"), made])


def _finished(model: Model, inputs: Items[object], outputs: Items[object]) -> Model:
    model.specify_inputs_and_outputs(inputs, outputs)  # type: ignore[arg-type]  # Tensors of the model.
    model.finish()
    return model


# Numbers of the values of `adding` and `answering`.
X, TOTAL, Y, MOST, STOP = range(1, 6)


def run_of_adding(prepared: Prepared, **fields: Any) -> LoopedRun:
    """Return a run of `adding` in a loop."""
    keepings = (0, Keeping(Y)), (1, Keeping(TOTAL))
    return LoopedRun(_dispatcher(prepared).signature, (X, TOTAL), keepings, {})._replace(**fields)


def run_of_answering(prepared: Prepared, **fields: Any) -> LoopedRun:
    """Return a run of `answering` in a loop."""
    keepings = (0, Keeping(X)), (1, Keeping(STOP))
    return LoopedRun(_dispatcher(prepared).signature, (Y, MOST), keepings, {})._replace(**fields)


def begin(prepared: Prepared, seed: int = 0, sequence_id: int = 0) -> Home:
    """Begin a sequence with all that `adding` and `answering` read, which the caller controls in each detail."""
    home = Home(_dispatcher(prepared))
    home.id = sequence_id or home.id
    most = np.full((ROWS, COLUMNS), np.inf, np.float32)
    home.write({X: question(seed), TOTAL: question(seed + 1), MOST: most})
    home.read([])
    return home


def _dispatcher(prepared: Prepared) -> ModelDispatcher:
    dispatcher = prepared.executor._dispatcher
    assert isinstance(dispatcher, ModelDispatcher)
    return dispatcher


def make_loop(home: Home, *runs: LoopedRun, steps: int = 1) -> list[Mapping[int, Array]]:
    """Let the device make a loop, and return what it delivers after each run. Raises the loop's error."""
    request = home.request(runs, Limits(steps), "")
    replies = call_in_worker(lambda: list(home.loop(request)))
    end = replies[-1].end
    if end.HasField("error"):
        raise wire.error_from_detail(end.error)
    return [arrived(each.values, home.session.place) for reply in replies for each in reply.delivered]


@contextmanager
def unharmed(prepared: Prepared, after: str) -> Iterator[None]:
    """Check after the block that another sequence of `adding` goes on as if nothing had happened."""
    xs = [question(seed) for seed in (101, 102)]
    with Sequence(prepared.executor, ADDED) as sequence:
        sequence.run({"x": xs[0]})
        yield
        _, total = prepared.run([xs[0], np.zeros_like(xs[0])])
        y, _ = prepared.run([xs[1], total])
        require_same(sequence.run({"x": xs[1]})["y"], y, f"output 'y' of another sequence after {after}")


@dataclass(frozen=True, slots=True)
class Signature:
    """Descriptions of a prepared model's inputs and outputs, for functions that make glue."""

    inputs: Items[TensorDesc]
    outputs: Items[TensorDesc]

    @classmethod
    def of(cls, prepared: Prepared) -> "Signature":
        """Return those of a model."""
        return cls(
            list(map(TensorDesc._from_spec, prepared.inputs)), list(map(TensorDesc._from_spec, prepared.outputs))
        )


@contextmanager
def remembering(target: Target, *models: Model) -> Iterator[tuple[Connection, list[Prepared]]]:
    """Open a session for the block, in which these models are prepared.

    Raises NotOffered if the daemon has no sequences, or the device doesn't take a model.
    """
    with target.session() as connection, ExitStack() as stack:
        if FEATURE not in connection.session.welcome.features:
            raise NotOffered("the daemon has no sequences")
        require_taken(connection, *models)
        yield connection, [stack.enter_context(connection.prepare(parts_of(model).graph)) for model in models]


def require_taken(connection: Connection, *models: Model) -> None:
    """Raise NotOffered if the device doesn't take one of the models."""
    for model in models:
        graph = parts_of(model).graph
        if reason := first_reason(connection.supported(graph)):
            raise NotOffered(f"the device doesn't take the model {graph.name!r} to try it with ({reason})")


def require_same(given: Array, wanted: Array, what: str) -> None:
    """Raise Breach unless two arrays are equal in type, shape and every bit."""
    kinds = [f"{array.dtype}{list(array.shape)}" for array in (given, wanted)]
    require(kinds[0] == kinds[1], f"{what} is {kinds[0]}; {kinds[1]} is right")
    if given.tobytes() != wanted.tobytes():
        at = tuple(int(index) for index in np.argwhere(given != wanted)[0]) if (given != wanted).any() else ()
        require(False, f"{what} is {given[at]} at {list(at)}; without a sequence the device computes {wanted[at]}")
