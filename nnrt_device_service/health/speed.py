"""Speed of a device: the multiply-adds per second of a product of large matrices."""

import time
from collections.abc import Callable

import numpy as np

from nnrt_hdi.backend import Cancellation, PreparedModel
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.tensor import Array, TensorSpec

# Rows of the matrices, as many as take a device this long. The fastest of some runs counts, and the first warms up.
_ROWS = (1024, 2048, 4096)
_LEAST_S = 0.02
_RUNS = 4


def product_speed(prepare: Callable[[Graph], PreparedModel], cancellation: Cancellation) -> float:
    """Return the multiply-adds per second of a product of FLOAT32 matrices, computed on behalf of a run with a slot.

    Raises what `prepare`, the model and `cancellation.check` raise.
    """
    for rows in _ROWS:
        matrix = np.ones((rows, rows), np.float32)
        matrix.flags.writeable = False
        prepared = prepare(_product(rows))
        try:
            took_s = min(_seconds(prepared, matrix, cancellation) for _ in range(_RUNS))
        finally:
            prepared.close()
        if took_s >= _LEAST_S:
            break
    return rows**3 / took_s


def _product(rows: int) -> Graph:
    """Return a model of y = a b for square matrices of so many rows."""
    tensors = [TensorSpec(DataType.FLOAT32, (rows, rows), name=name) for name in ("a", "b", "y")]
    return Graph(tuple(tensors), (Node(NodeType.MATMUL_FUSION, (0, 1), (2,)),), (0, 1), (2,), {}, "speed")


def _seconds(prepared: PreparedModel, matrix: Array, cancellation: Cancellation) -> float:
    cancellation.check()
    began = time.perf_counter()
    prepared.run([matrix, matrix], cancellation)
    return time.perf_counter() - began
