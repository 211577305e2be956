"""Conformance kit: tests whether a daemon keeps the contract, given only its address."""

from nnrt_client.conformance.case import Case, Distance, Level, Mark, Run
from nnrt_client.conformance.cases import cases

__all__ = ["Case", "Distance", "Level", "Mark", "Run", "cases"]
