"""What applications ask for where a device doesn't run all of a model."""

from dataclasses import dataclass

from nnrt_hdi.errors import InvalidParameter

CPU = "cpu"
SMALLEST_PART = 8


@dataclass(frozen=True, slots=True)
class Fallback:
    """Run here, on `device`, what the device doesn't run, and parts with fewer operators than `smallest_part`.

    "cpu" is the only device there is here. A part that has a convolution, a matrix product, a recurrent layer or
    attention goes to the device in any case; operators that compute integers only, as shape arithmetic does, don't
    count. With a `smallest_part` of 1 everything goes there that can.
    """

    device: str = CPU
    smallest_part: int = SMALLEST_PART

    def __post_init__(self) -> None:
        if self.device != CPU:
            raise InvalidParameter(f'the fallback is {self.device!r}; use "cpu", or None for none')
        if type(self.smallest_part) is not int or self.smallest_part < 1:
            raise InvalidParameter(f"smallest_part is {self.smallest_part!r}; use a whole number of 1 or more")


def chosen_fallback(given: "str | Fallback | None") -> Fallback | None:
    """What was asked for. Raises InvalidParameter for what there isn't."""
    return given if given is None or isinstance(given, Fallback) else Fallback(given)
