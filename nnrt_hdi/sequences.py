"""Sequences: values that stay on the device between runs, as both ends of the wire know them."""

from typing import NamedTuple

# In Welcome.features: the service Sequences works, and runs may be runs of a sequence.
FEATURE = "sequences"

# Most steps of a loop, most bytes of values that it delivers, and most milliseconds that it takes.
MAX_STEPS = 1 << 20
MAX_BYTES = 1 << 30
MAX_MS = 3_600_000
# Most runs in a step of a loop, and most values that one Read returns, or that a run of a loop delivers.
MAX_RUNS = 4096
MAX_READ = 1024


class Keeping(NamedTuple):
    """Rule by which a run keeps an output as a value of its sequence; fields as in TensorDescription."""

    value: int
    appends: bool = False
    axis: int = 0
    window: int = 0
