"""Option for models of which a device runs only parts."""

from dataclasses import dataclass

from nnrt_hdi.errors import InvalidParameter

CPU = "cpu"
SMALLEST_PART = 8


@dataclass(frozen=True, slots=True)
class Fallback:
    """Request that this process runs the parts of a model that the daemon's device doesn't run.

    A part that has a convolution, a matrix product, a recurrent layer or attention goes to the device in any case.

    Attributes:
        device: Where this process runs them: "cpu" is the only choice.
        smallest_part: Operators that any other part must have to go to the device. Operators that compute only
            integers, as shape arithmetic does, don't count. With 1, the device gets every part that it can run.
    """

    device: str = CPU
    smallest_part: int = SMALLEST_PART

    def __post_init__(self) -> None:
        if self.device != CPU:
            raise InvalidParameter(f'the fallback is {self.device!r}; use "cpu", or None for none')
        if type(self.smallest_part) is not int or self.smallest_part < 1:
            raise InvalidParameter(f"smallest_part is {self.smallest_part!r}; use a whole number of 1 or more")


def choose_fallback(given: "str | Fallback | None") -> Fallback | None:
    """Return the fallback that was asked for; raise InvalidParameter for an unknown one."""
    return given if given is None or isinstance(given, Fallback) else Fallback(given)
