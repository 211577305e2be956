"""Remainders by the torch backend are those of C, for numbers of any size."""

import numpy as np
import pytest
from operators.single_node import graph_of, spec

from nnrt_hdi.backend import Cancellation, ModelConfig, load_backend
from nnrt_hdi.enums import DataType, NodeType

pytest.importorskip("torch", reason="needs torch: `make test-torch` has it")

COUNT = 100_000


@pytest.mark.parametrize("mantissa", [32, 23], ids=["any numbers", "denormal numbers"])
def test_remainders_of_float32(mantissa: int) -> None:
    """Quotients beyond FLOAT32, and denormal divisors, need care in vector code."""
    rng = np.random.default_rng(mantissa)
    a, b = (rng.integers(0, 1 << bits, COUNT).astype(np.uint32).view(np.float32) for bits in (32, mantissa))
    backend, vector = load_backend("torch"), spec((COUNT,), DataType.FLOAT32)
    model = backend.prepare(
        graph_of(NodeType.MOD, [(vector, None), (vector, None)], {}, vector), ModelConfig(), lambda _: None
    )
    (remainders,) = model.run([a, b], Cancellation())
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(remainders, np.fmod(a, b))
    backend.close()
