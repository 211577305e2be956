"""Images resized, rearranged and read: the operators that know height and width."""

from .case import Case

CASES: list[Case] = []
