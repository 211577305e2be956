"""Ways in which a device can get a model."""

from enum import Enum


class Way(str, Enum):
    """Way in which `load` gives a model to a device. Members equal their text: Way.PROGRAM == "program"."""

    # As NNRt's operators, or as what a device compiled from them; every device takes this way.
    OPERATORS = "operators"
    # As the file itself, in a format that the device's capability program_formats names.
    PROGRAM = "program"
    # In parts, some of which the device runs and the others the client; only if `fallback` asks for it.
    PARTITION = "partition"

    def __str__(self) -> str:
        return self.value
