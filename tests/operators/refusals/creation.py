"""Tensors made from a shape or a range."""

from .case import Case

CASES: list[Case] = []
