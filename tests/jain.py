"""How even shares are."""

from collections.abc import Sequence


def jain_index(amounts: Sequence[float]) -> float:
    """1 where all are equal, 1/n where one has everything (Jain, Chiu, Hawe 1984)."""
    return sum(amounts) ** 2 / (len(amounts) * sum(amount**2 for amount in amounts))
