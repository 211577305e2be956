"""Tensors made from a shape or a range."""

from nnrt_client.operations.operation import Operation

OPERATIONS: tuple[Operation, ...] = ()
