"""Error that lists the parts of an ONNX file that can't be imported."""

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import Self

from nnrt_hdi.enums import ReturnCode
from nnrt_hdi.errors import Unsupported


@dataclass(frozen=True, slots=True)
class Problem:
    """Part of a file that can't be imported, with the reason. `operator` and `node` are empty unless it is a node."""

    reason: str
    operator: str = ""
    node: str = ""


def grouped(problems: Sequence[Problem]) -> list[list[Problem]]:
    """Group problems by operator and reason, in the order of the first of each group."""
    groups: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        groups.setdefault((problem.operator, problem.reason), []).append(problem)
    return list(groups.values())


class NotImported(Unsupported, code=ReturnCode.UNSUPPORTED, status=Unsupported.grpc_status):
    """Error for a file that can't be imported; `problems` lists every reason."""

    def __init__(self, message: str, *, place: str = "", problems: Sequence[Problem] = ()) -> None:
        super().__init__(message, place=place)
        self.problems = tuple(problems)

    def at(self, place: str) -> Self:
        """Return a copy with the place in front of the message, and the same problems."""
        error = super().at(place)
        error.problems = self.problems
        return error
