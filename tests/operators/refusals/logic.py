"""Comparisons, logic, and choices by a condition."""

from .case import Case

CASES: list[Case] = []
