"""Comparisons, logic, and choices by a condition."""

from nnrt_client.operations.operation import Operation

OPERATIONS: tuple[Operation, ...] = ()
