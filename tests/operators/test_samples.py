"""Samples with unknown dimensions. What kernels make of them is tried in test_answers.py."""

import pytest

from nnrt_client.conformance.cases.sample import Sample
from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_hdi.errors import InvalidParameter

from .single_node import infer_all, pairs, without_dims

pytestmark = pytest.mark.table

per_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


@per_sample
def test_unknown_dimensions(sample: Sample) -> None:
    """With any dimension unknown, inference says what is still known, or why that one must be."""
    operands = pairs(sample, sample.arrays())
    known = infer_all(sample.node_type, operands, sample.attrs)
    for index, (operand, value) in enumerate(operands):
        for axis in range(operand.rank if value is None else 0):
            partly = [*operands[:index], without_dims(operands[index], axis), *operands[index + 1 :]]
            try:
                inferred = infer_all(sample.node_type, partly, sample.attrs)
            except InvalidParameter as refusal:
                assert "known" in str(refusal)
                continue
            for partial, whole in zip(inferred, known, strict=True):
                assert partial.accepts(whole.shape)
                assert partial.data_type == whole.data_type
