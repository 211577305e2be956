"""Ways in which a device can get a model."""

from enum import Enum


class Way(str, Enum):
    """Way in which `load` gives a model to a device. Members are texts: "program" is Way.PROGRAM."""

    # As NNRt's operators, or what a device compiled from them; on every device.
    OPERATORS = "operators"
    # The file as it is, in the device's own format; on devices whose capability program_formats names it.
    PROGRAM = "program"
    # Cut into parts, some of which the device runs and the others the client; only if `fallback` asks for it.
    PARTITION = "partition"

    def __str__(self) -> str:
        return self.value
