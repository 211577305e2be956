"""The torch backend gives the answers that the oracles gave for the kit's cases, and refuses no operator."""

from collections.abc import Iterator

import pytest
from operators.test_answers import cases_of, distances_of, per_part

from nnrt_client.conformance import Level
from nnrt_hdi.backend import Backend, load_backend
from nnrt_hdi.ops import OPERATORS

pytest.importorskip("torch", reason="needs torch: `make test-torch` has it")

from nnrt_backend_torch.kernels import KERNELS


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    backend = load_backend("torch")
    yield backend
    backend.close()


@per_part
def test_torch_gives_the_answers(level: Level, family: str, backend: Backend) -> None:
    for case in cases_of(level, family):
        distances_of(case, backend)


def test_every_operator_has_a_kernel() -> None:
    """The pages of the operators say so."""
    assert set(KERNELS) == set(OPERATORS)
