"""Elements picked or placed by their index."""

from .case import Case

CASES: list[Case] = []
