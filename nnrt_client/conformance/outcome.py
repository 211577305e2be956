"""Outcomes of the kit's trials."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from nnrt_hdi.enums import ReturnCode
from nnrt_hdi.errors import NnrtError


class Verdict(Enum):
    """A judgement of what a device made of a trial."""

    RIGHT = "right"
    # It says that it doesn't do this: less coverage, and no fault.
    REFUSED = "refused"
    # Another answer than the right one, or another behaviour than the contract's.
    WRONG = "wrong"
    # It says that it does this, and then gives an error in place of an answer.
    FAILED = "failed"
    # Its daemon ended, or answers nothing any more.
    CRASHED = "crashed"
    # The daemon was gone by then.
    UNTRIED = "untried"

    @property
    def is_fault(self) -> bool:
        """True where the device has to be mended."""
        return self in (Verdict.WRONG, Verdict.FAILED, Verdict.CRASHED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict, and why where it isn't RIGHT.

    `error` is the worst relative error of an answer that was compared, infinite where it is no number or of another
    shape or data type; `tolerance` is what it may be. `code` is that of the error that came in place of an answer.
    `is_unclaimed` is true of what is refused for want of a capability that the device doesn't claim.
    """

    verdict: Verdict
    reason: str = ""
    error: float | None = None
    tolerance: float = 0.0
    code: ReturnCode | None = None
    is_unclaimed: bool = False

    def describe(self) -> dict[str, Any]:
        """The outcome for --json."""
        return {
            "verdict": self.verdict.value,
            "reason": self.reason,
            "error": self.error,
            "tolerance": self.tolerance,
            "code": self.code.name if self.code is not None else None,
        }


RIGHT = Outcome(Verdict.RIGHT)


def said(error: NnrtError) -> str:
    """An error as a report quotes it: its return code, its place and message."""
    return f"{error.code.name}: {error}"


def failure(error: NnrtError) -> Outcome:
    """The outcome of a trial in which an error came in place of an answer."""
    return Outcome(Verdict.FAILED, said(error), code=error.code)
