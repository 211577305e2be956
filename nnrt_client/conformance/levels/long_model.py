"""Model whose runs take long enough to be stopped, on any device."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnrt_client.conformance.levels.check import NotOffered, require
from nnrt_client.conformance.target import Connection, Prepared, first_reason
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.tensor import TensorSpec

# Duration of a run in seconds: the target, the minimum when the model is chosen, and the minimum for a valid trial.
_WANTED_S, _LEAST_S, _SHORT_S = 0.4, 0.15, 0.1
_SIDES = (512, 1024, 2048)
_FEW, _LEAST_NODES, _MOST_NODES = 4, 16, 256
_TRIES = 4


Floats = NDArray[np.float32]


class RunTooShort(Exception):
    """A run is too short for the trial, which is void.

    The model's length was chosen by timing runs, which other work slowed down.
    """


@dataclass(frozen=True, slots=True)
class LongModel:
    """Prepared chain of equal nodes. A run can stop after each node, so every `took_s / nodes` seconds."""

    prepared: Prepared
    given: Floats
    wanted: Floats
    nodes: int
    # Duration of a run that is not stopped.
    took_s: float

    def time_run(self, when: str) -> float:
        """Return the duration of a whole run. Raises Breach unless its answer is right."""
        began = time.monotonic()
        (output,) = self.prepared.run([self.given])
        took_s = time.monotonic() - began
        require(np.array_equal(output, self.wanted), f"a chain of {self.nodes} nodes has another answer {when}")
        return took_s

    def require_long(self, whole_s: float) -> None:
        """Raise RunTooShort if a whole run took less than _SHORT_S."""
        if whole_s < _SHORT_S:
            raise RunTooShort


def try_with_long_model(connection: Connection, trial: Callable[[LongModel], None]) -> None:
    """Run a trial with a long model, and again with a new one each time the trial raises RunTooShort."""
    for _ in range(_TRIES):
        model = find_long_model(connection)
        with model.prepared, suppress(RunTooShort):
            trial(model)
            return
    raise NotOffered("no run takes long at one time that doesn't take little at another")


def find_long_model(connection: Connection) -> LongModel:
    """Return a model that runs for about half a second. Raises NotOffered if the device can't."""
    reasons = []
    for side in _SIDES:
        for node_type, constant, given in _links(side):
            try:
                model = _scale_chain(connection, node_type, constant, given)
            except NnrtError as error:  # For example, too little memory.
                reasons.append(error.message)
                continue
            if isinstance(model, LongModel):
                return model
            reasons.append(model)
    raise NotOffered(f"no run takes long enough to be stopped ({'; '.join(dict.fromkeys(reasons))})")


def _scale_chain(connection: Connection, node_type: NodeType, constant: Floats, given: Floats) -> LongModel | str:
    """Return a chain with enough nodes to take long, or the reason why there is none."""
    if reason := first_reason(connection.supported(_chain(node_type, constant, given, _FEW))):
        return reason
    nodes, took_s = _FEW, 0.0
    for _ in range(_TRIES):  # Other work may have slowed the measurement.
        prepared = connection.prepare(_chain(node_type, constant, given, nodes))
        took_s = _time_two_runs(prepared, given)
        if took_s >= _LEAST_S and nodes >= _LEAST_NODES:
            break
        prepared.close()
        each_s = took_s / nodes
        nodes = min(max(int(_WANTED_S / each_s), _LEAST_NODES), _MOST_NODES)
        if nodes * each_s < _LEAST_S:
            return f"{nodes} {node_type.name} of {list(given.shape)} take {nodes * each_s:.3f} s"
    else:
        return f"{nodes} {node_type.name} of {list(given.shape)} take much longer at one time than at another"
    wanted = given[:, :: -1 if nodes % 2 else 1] if node_type is NodeType.MATMUL_FUSION else given + nodes * constant
    return LongModel(prepared, given, wanted, nodes, took_s)


def _time_two_runs(prepared: Prepared, given: Floats) -> float:
    """Make two runs and return the duration of the faster one in seconds."""
    times = []
    for _ in range(2):
        began = time.monotonic()
        prepared.run([given])
        times.append(time.monotonic() - began)
    return min(times)


def _links(side: int) -> Iterator[tuple[NodeType, Floats, Floats]]:
    """Yield nodes of one operand and one constant; a chain of them has only small integers as values."""
    numbers = (np.arange(side * side) % 7 - 3).reshape(side, side).astype(np.float32)
    # Reverses the columns; the next node reverses them again.
    yield NodeType.MATMUL_FUSION, np.ascontiguousarray(np.eye(side, dtype=np.float32)[::-1]), numbers
    yield NodeType.ADD_FUSION, np.where(numbers > 0, np.float32(1), np.float32(-1)), numbers


def _chain(node_type: NodeType, constant: Floats, given: Floats, length: int) -> Graph:
    spec = TensorSpec(DataType.FLOAT32, given.shape)
    nodes = [Node(node_type, (0 if at == 0 else at + 1, 1), (at + 2,)) for at in range(length)]
    tensors = [spec] * (length + 2)
    return Graph(tuple(tensors), tuple(nodes), (0,), (length + 1,), {1: Constant.of(constant)}, f"chain of {length}")
