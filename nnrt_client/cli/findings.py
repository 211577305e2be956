"""Findings of `nnrt doctor`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from nnrt_hdi.errors import NnrtError, OperationForbidden


class Verdict(Enum):
    """Judgement of a finding."""

    OK = "ok"
    # It works, but could be better.
    ADVICE = "advice"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding: what was checked, the result, and what to type or do, if anything."""

    about: str
    verdict: Verdict
    found: str
    advice: str = ""

    def described(self) -> dict[str, Any]:
        """Return the finding for --json."""
        return {**asdict(self), "verdict": self.verdict.value}


def ok(about: str, found: str) -> Finding:
    return Finding(about, Verdict.OK, found)


def advise(about: str, found: str, advice: str) -> Finding:
    return Finding(about, Verdict.ADVICE, found, advice)


def problem(about: str, found: str, advice: str = "") -> Finding:
    return Finding(about, Verdict.PROBLEM, found, advice)


def refused(about: str, error: NnrtError) -> Finding:
    """Return an error as a problem with its advice."""
    found, _, advice = error.message.partition("; ")
    return problem(about, found, advice)


Check = Callable[[], Iterable[Finding]]


def examined(checks: Mapping[str, Check]) -> list[Finding]:
    """Run checks one after another and return the findings.

    A check that fails is a problem itself, unless this client may not make it; the others still run.
    """
    findings: list[Finding] = []
    for about, check in checks.items():
        try:
            findings += check()
        except OperationForbidden as error:
            findings.append(ok(about, f"not tried: {error.message}"))
        except NnrtError as error:
            findings.append(refused(about, error))
        except OSError as error:
            findings.append(problem(about, f"it can't be looked at: {error}"))
    return findings
