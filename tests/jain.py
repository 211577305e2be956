"""Measure of fairness."""

from collections.abc import Sequence


def jain_index(amounts: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 if all amounts are equal, 1/n if one has everything (Jain, Chiu, Hawe 1984)."""
    return sum(amounts) ** 2 / (len(amounts) * sum(amount**2 for amount in amounts))
