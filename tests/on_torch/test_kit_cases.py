"""The torch backend gives the answers that the oracles gave for the kit's cases, and refuses no operator."""

import pytest
from loaded import loaded
from operators.test_answers import cases_of, distances_of, per_part

from nnrt_client.conformance import Level

pytest.importorskip("torch", reason="torch is not installed; the extra nnrt[torch] has it")


@per_part
def test_torch_gives_the_answers(level: Level, family: str) -> None:
    backend = loaded("torch")
    for case in cases_of(level, family):
        distances_of(case, backend)
