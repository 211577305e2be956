"""Log of a sequence: what another device needs to go on with it."""

from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np

from nnrt_client.sequences.home import Keepings
from nnrt_client.sequences.plan import LoopPlan
from nnrt_hdi.tensor import Array

# Estimated size of an entry without its arrays.
_ENTRY_BYTES = 256


@dataclass(frozen=True, slots=True)
class LoggedValues:
    """Values that were written, by number."""

    values: Mapping[int, Array]


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """Run of the model: the values of inputs by number, written before it, and what became of the outputs."""

    reads: Items[int]
    values: Mapping[int, Array]
    keepings: Keepings


@dataclass(frozen=True, slots=True)
class LoggedLoop:
    """Loop of so many steps, whose runs `plan` makes again for another device."""

    values: Mapping[int, Array]
    plan: LoopPlan
    steps: int


Entry = LoggedValues | LoggedRun | LoggedLoop


class Log:
    """Operations of a sequence since its beginning, or since the latest checkpoint."""

    def __init__(self, most_bytes: int) -> None:
        """Create a log for up to about `most_bytes`; beyond, the sequence makes a checkpoint."""
        self._most_bytes = most_bytes
        self.entries: list[Entry] = []
        self._size_bytes = 0
        self._checkpoint_bytes = 0

    @property
    def is_full(self) -> bool:
        """True if a checkpoint would make the log shorter."""
        return self._size_bytes > max(self._most_bytes, 2 * self._checkpoint_bytes)

    def add(self, entry: Entry) -> None:
        """Add an operation that has been done. Its arrays must not change any more."""
        self.entries.append(entry)
        self._size_bytes += _ENTRY_BYTES + _bytes_of(entry.values)

    def restart(self, values: Mapping[int, Array]) -> None:
        """Replace all operations by the values that are their result."""
        self.entries = [LoggedValues(values)]
        self._size_bytes = self._checkpoint_bytes = _bytes_of(values)

    def copy(self) -> "Log":
        """Return a copy, for a sequence that begins as this one."""
        copied = Log(self._most_bytes)
        copied.entries = list(self.entries)
        copied._size_bytes, copied._checkpoint_bytes = self._size_bytes, self._checkpoint_bytes
        return copied


def frozen(array: Array) -> Array:
    """Return a copy of an array that the application may change."""
    copy: Array = np.array(array)
    return copy


def _bytes_of(values: Mapping[int, Array]) -> int:
    return sum(array.nbytes for array in values.values())
