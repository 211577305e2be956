"""Copies of the reference backend with one typical defect each, which prove that the conformance kit finds defects."""
