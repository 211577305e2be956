"""Models of a few bytes whose results follow from constants, but not soon."""

from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon

from nnrt_client import Compilation, Executor, Model, OperationType, Runtime, TimedOut

SIZE = 2500
PRODUCTS = 40


def powers_model(size: int) -> Model:
    """x + the sum of a power of a matrix of ones."""
    model = Model()
    x = model.input((1,), name="x")
    ones = model.apply(OperationType.FILL, np.ones(1, np.float32), np.array([size, size], np.int32))
    product = ones
    for _ in range(PRODUCTS):
        product = model.apply(OperationType.MATMUL, product, ones)
    total = model.apply(OperationType.REDUCE_MAX, product, np.array([0, 1], np.int32))
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.ADD, x, total)])
    model.finish()
    return model


@pytest.mark.parametrize("kept", ["", "--store-dir"], ids=["not kept", "kept"])
def test_what_would_take_long_is_left_to_runs(start_daemon: StartDaemon, tmp_path: Path, kept: str) -> None:
    """There a timeout ends it; a compilation of it would hold a place, and outlive its client."""
    daemon = start_daemon("--backend", "onnxruntime", *([kept, str(tmp_path)] if kept else []))
    with Runtime([daemon.address]) as runtime, Compilation(powers_model(SIZE), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor, pytest.raises(TimedOut):
            executor.run_sync([np.ones(1, np.float32)], timeout_ms=100)


def test_what_is_soon_computed_is_computed_once(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "onnxruntime")
    with Runtime([daemon.address]) as runtime, Compilation(powers_model(2), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            assert executor.run_sync([np.ones(1, np.float32)])[0] == 1 + 2.0**PRODUCTS
