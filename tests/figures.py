"""Figures of the comparison with oracles, shown at the end of a test run.

A plug-in, so that those of all processes that run tests come together.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

Figures = dict[tuple[str, str, str], list[float]]
FIGURES = pytest.StashKey[Figures]()
Steps = dict[tuple[str, str], list[tuple[float, float]]]
STEPS = pytest.StashKey[Steps]()


@pytest.fixture
def record_error(request: pytest.FixtureRequest) -> Iterator[Callable[[str, str, str, float], None]]:
    """Takes operator, data type, oracle and relative error of a case; types that don't round count as one."""
    figures = request.config.stash.setdefault(FIGURES, {})

    def record(operator: str, dtype: str, oracle: str, error: float) -> None:
        shown = dtype if dtype.startswith("float") else "exact"
        figures.setdefault((operator, shown, oracle), []).append(error)

    yield record


@pytest.fixture
def record_steps(request: pytest.FixtureRequest) -> Callable[[str, str, float, float], None]:
    """Takes operator and oracle of a quantized case, the largest difference in steps, and the share that is equal."""
    steps = request.config.stash.setdefault(STEPS, {})

    def record(operator: str, oracle: str, most: float, equal: float) -> None:
        steps.setdefault((operator, oracle), []).append((most, equal))

    return record


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Of a process that runs tests for another: tell it."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["figures"] = list(session.config.stash.get(FIGURES, {}).items())
        told["steps"] = list(session.config.stash.get(STEPS, {}).items())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    told = getattr(node, "workeroutput", {})
    figures, steps = node.config.stash.setdefault(FIGURES, {}), node.config.stash.setdefault(STEPS, {})
    for key, errors in told.get("figures", ()):
        figures.setdefault(tuple(key), []).extend(errors)
    for key, cases in told.get("steps", ()):
        steps.setdefault(tuple(key), []).extend(cases)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    _report_steps(terminalreporter, config.stash.get(STEPS, {}))
    figures = config.stash.get(FIGURES, {})
    if not figures:
        return
    terminalreporter.section("reference kernels against their oracles")
    terminalreporter.write_line(f"{'operator':<26} {'dtype':<8} {'cases':>5} {'worst error':>12}  oracle")
    for (operator, dtype, oracle), errors in sorted(figures.items()):
        terminalreporter.write_line(f"{operator:<26} {dtype:<8} {len(errors):>5} {max(errors):>12.1e}  {oracle}")


def _report_steps(terminalreporter: pytest.TerminalReporter, steps: Steps) -> None:
    if not steps:
        return
    terminalreporter.section("quantized reference kernels against their oracles")
    terminalreporter.write_line(f"{'operator':<26} {'cases':>5} {'most steps':>10} {'equal':>7}  oracle")
    for (operator, oracle), cases in sorted(steps.items()):
        most, equal = max(case[0] for case in cases), sum(case[1] for case in cases) / len(cases)
        terminalreporter.write_line(f"{operator:<26} {len(cases):>5} {most:>10.3f} {equal:>7.2%}  {oracle}")
