"""The error that says what of an ONNX file can't be imported, part by part."""

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import Self

from nnrt_hdi.enums import ReturnCode
from nnrt_hdi.errors import Unsupported


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of a file that can't be imported, and why. Of a node it says the operator and the name."""

    reason: str
    operator: str = ""
    node: str = ""


def grouped(problems: Sequence[Problem]) -> list[list[Problem]]:
    """The problems by operator and reason, in their order."""
    groups: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        groups.setdefault((problem.operator, problem.reason), []).append(problem)
    return list(groups.values())


class NotImported(Unsupported, code=ReturnCode.UNSUPPORTED, status=Unsupported.grpc_status):
    """A file can't be imported; `problems` are all that is in the way."""

    def __init__(self, message: str, *, place: str = "", problems: Sequence[Problem] = ()) -> None:
        super().__init__(message, place=place)
        self.problems = tuple(problems)

    def at(self, place: str) -> Self:
        """A copy with the place in front, and the same problems."""
        error = super().at(place)
        error.problems = self.problems
        return error
