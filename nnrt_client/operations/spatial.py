"""Images resized, rearranged and read: the operators that know height and width."""

from nnrt_client.operations.operation import Operation

OPERATIONS: tuple[Operation, ...] = ()
