"""The ways in which a device can get a model."""

from enum import Enum


class Way(str, Enum):
    """A way in which `load` has a device run a model; members are texts, so that "program" is Way.PROGRAM."""

    # As NNRt's operators, or what a device compiled from them: on every device.
    OPERATORS = "operators"
    # The file as it is, in the device's own format: on devices whose capability program_formats names it.
    PROGRAM = "program"
    # Cut into parts, of which the device runs some and the client the others: only if `fallback` asks for it.
    PARTITION = "partition"

    def __str__(self) -> str:
        return self.value
