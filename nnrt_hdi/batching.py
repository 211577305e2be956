"""Settings of batching: runs that the device computes together."""

from dataclasses import dataclass

from nnrt_hdi.errors import InvalidParameter

# In Welcome.features: the daemon can batch runs.
FEATURE = "batching"

# Largest settings: more rows gain nothing, and a wait of a second is a mistake.
MOST_ROWS = 1 << 16
MOST_DELAY_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Batching:
    """Batching: the device computes runs that wait at the same time as one run with all their rows.

    A batch has at most `max_size` rows along the first dimension. A run waits at most `max_delay_us` microseconds for
    others while the device is free; by default not at all. Raises InvalidParameter for impossible values.
    """

    max_size: int = 16
    max_delay_us: int = 0

    @classmethod
    def of(cls, text: str) -> "Batching":
        """Parse MAX or MAX:DELAY_US. Raise InvalidParameter."""
        most, _, delay_us = text.partition(":")
        if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in (most, delay_us or "0")):
            raise InvalidParameter(f"{text!r} is not MAX or MAX:DELAY_US, such as 16 or 16:200", place="Batching")
        return cls(int(most), int(delay_us or 0))

    def __post_init__(self) -> None:
        for what, value, least, most in (
            ("max_size", self.max_size, 2, MOST_ROWS),
            ("max_delay_us", self.max_delay_us, 0, MOST_DELAY_US),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise InvalidParameter(f"{what} is {value!r}; use an integer {least}..{most}", place="Batching")
