"""Elements picked or placed by their index."""

from nnrt_client.operations.operation import Operation

OPERATIONS: tuple[Operation, ...] = ()
