"""Messages between the daemon and the process of a model.

A channel is a socket of packets, and memory that both have mapped. The daemon writes a question to the memory, and
sends a request; the process writes the answer behind the question, and sends a reply. Tensors lie in the memory, too,
and a layout describes them. Foreign code may have written what the process sends.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from nnrt_hdi.enums import DataType
from nnrt_hdi.forking import aligned
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import MAX_DIM, MAX_RANK, NUMPY_DTYPES, Array, data_type_of

# Kinds of requests: make the model; run it; run it and measure its operators; say how much a run takes; export it; take
# other memory (of 0 bytes: there is none).
LOAD, RUN, PROFILE, SIZES, EXPORT, MEMORY = range(6)
# Kinds of replies: the answer; an error; the fraction done; the need for more memory.
DONE, FAILED, PROGRESS, ROOM = range(4)
# Of a request: kind, deadline, bytes of the question, number of the call. Of a reply: kind, fraction done, bytes of the
# answer or of memory, bytes of what follows the answer.
MESSAGE = struct.Struct("<BdQQ")
# On the control socket: number of a channel, and of the call to cancel (0: the channel is new, and comes along).
CONTROL = struct.Struct("<QQ")
# What sizes have besides the outputs.
NUMBERS = [each.name for each in fields(Sizes) if each.name != "outputs"]
# Bytes of memory that a channel has at least. An error fits in.
LEAST_BYTES = 1 << 16
# Characters of an error's texts; JSON has up to six bytes for each.
MOST_TEXT = LEAST_BYTES // 16
# Bytes of a tensor in the head of a layout.
MOST_SPEC_BYTES = 8 * (2 + MAX_RANK)
_MOST_REMEMBERED = 64


class Layout:
    """Tensors in the memory of a channel, one after another."""

    __slots__ = ("_tensors", "end", "head")

    def __init__(self, head: bytes, start: int) -> None:
        """Place the tensors that `described` has described, from `start` on. Raise ValueError for a wrong layout."""
        self.head = head
        self._tensors: list[tuple[tuple[int, ...], np.dtype[np.generic], int]] = []
        self.end, at = aligned(start), 0
        try:
            numbers = struct.unpack(f"<{len(head) // 8}q", head)
            while at < len(numbers):
                dtype, rank = NUMPY_DTYPES[DataType(numbers[at])], numbers[at + 1]
                shape = numbers[at + 2 : at + 2 + rank]
                if not 0 <= rank == len(shape) <= MAX_RANK or not all(0 <= dim <= MAX_DIM for dim in shape):
                    raise ValueError(f"a tensor can't have the dimensions {shape}")
                self._tensors.append((shape, dtype, self.end))
                self.end = aligned(self.end + math.prod(shape) * dtype.itemsize)
                at += 2 + rank
        except (LookupError, struct.error) as error:
            raise ValueError(f"{len(head)} bytes describe no tensors") from error

    def views(self, memory: memoryview) -> list[Array]:
        """Return the tensors as views of the memory. Raise ValueError if it is too short."""
        if self.end > len(memory):
            raise ValueError(f"the tensors end at {self.end} of {len(memory)} bytes")
        return [np.ndarray(shape, dtype, memory, offset) for shape, dtype, offset in self._tensors]


def described(arrays: Sequence[Array]) -> bytes:
    """Return the head of a layout: for each array the number of its data type, its rank and its dimensions."""
    numbers: list[int] = []
    for array in arrays:
        numbers += (int(data_type_of(array.dtype)), array.ndim, *array.shape)
    return struct.pack(f"<{len(numbers)}q", *numbers)


def remember(entries: dict[Any, Any], key: Any, entry: Any) -> Any:
    """Add an entry, and return it. Drop all others if they are many: most runs are like the run before them."""
    if len(entries) >= _MOST_REMEMBERED:
        entries.clear()
    entries[key] = entry
    return entry
