"""Outcomes of the kit's trials."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from nnrt_hdi.enums import ReturnCode
from nnrt_hdi.errors import NnrtError


class Verdict(Enum):
    """Result of a trial: right, refused, or a kind of fault."""

    RIGHT = "right"
    # The device says that it doesn't support this: less coverage, but no fault.
    REFUSED = "refused"
    # A wrong answer, or a breach of the contract.
    WRONG = "wrong"
    # The device says that it supports this, and then returns an error.
    FAILED = "failed"
    # The daemon ended or stopped answering.
    CRASHED = "crashed"
    # The daemon had ended before this trial.
    UNTRIED = "untried"

    @property
    def is_fault(self) -> bool:
        """True if the backend or the daemon must be fixed."""
        return self in (Verdict.WRONG, Verdict.FAILED, Verdict.CRASHED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Verdict and, unless it is RIGHT, the reason.

    `error` is the largest relative error of a compared answer, infinite for NaN, another shape or another data type;
    `tolerance` is the error that is allowed. `code` belongs to an error that came in place of an answer. `is_unclaimed`
    is true for a refusal for lack of a capability that the device doesn't claim.
    """

    verdict: Verdict
    reason: str = ""
    error: float | None = None
    tolerance: float = 0.0
    code: ReturnCode | None = None
    is_unclaimed: bool = False

    def describe(self) -> dict[str, Any]:
        """Return the outcome as --json prints it."""
        return {
            "verdict": self.verdict.value,
            "reason": self.reason,
            "error": self.error,
            "tolerance": self.tolerance,
            "code": self.code.name if self.code is not None else None,
        }


RIGHT = Outcome(Verdict.RIGHT)


def quote_error(error: NnrtError) -> str:
    """Return an error's code, place and message, as a report quotes them."""
    return f"{error.code.name}: {error}"


def outcome_from_error(error: NnrtError) -> Outcome:
    """Return the outcome of a trial that ended with an error instead of an answer."""
    return Outcome(Verdict.FAILED, quote_error(error), code=error.code)
