"""Findings of the checks that `nnrt doctor` runs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from nnrt_hdi.errors import NnrtError, OperationForbidden


class Verdict(Enum):
    """Judgement of one check."""

    OK = "ok"
    # It works, but could work better.
    ADVICE = "advice"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check: what was checked, what was found, and what to type or do about it."""

    about: str
    verdict: Verdict
    found: str
    advice: str = ""

    def describe(self) -> dict[str, Any]:
        """Return the finding as --json prints it."""
        return {**asdict(self), "verdict": self.verdict.value}


def ok(about: str, found: str) -> Finding:
    return Finding(about, Verdict.OK, found)


def advise(about: str, found: str, advice: str) -> Finding:
    return Finding(about, Verdict.ADVICE, found, advice)


def problem(about: str, found: str, advice: str = "") -> Finding:
    return Finding(about, Verdict.PROBLEM, found, advice)


def problem_from(about: str, error: NnrtError) -> Finding:
    """Return a problem from an error's message, whose part after "; " becomes the advice."""
    found, _, advice = error.message.partition("; ")
    return problem(about, found, advice)


Check = Callable[[], Iterable[Finding]]


def run_checks(checks: Mapping[str, Check]) -> list[Finding]:
    """Run the checks in order and return their findings.

    A check that raises becomes a problem, or `ok` if this client lacks the right to run it. The others still run.
    """
    findings: list[Finding] = []
    for about, check in checks.items():
        try:
            findings += check()
        except OperationForbidden as error:
            findings.append(ok(about, f"not tried: {error.message}"))
        except NnrtError as error:
            findings.append(problem_from(about, error))
        except OSError as error:
            findings.append(problem(about, f"it can't be looked at: {error}"))
    return findings
