"""Pytest plugin that collects the errors of kernels against their oracles, and shows them after the tests.

As a plugin it also collects the figures of pytest-xdist's worker processes.
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
    """Yield a function that records a case's operator, data type, oracle and relative error.

    All types that don't round count as one type, "exact".
    """
    figures = request.config.stash.setdefault(FIGURES, {})

    def record(operator: str, dtype: str, oracle: str, error: float) -> None:
        shown = dtype if dtype.startswith("float") else "exact"
        figures.setdefault((operator, shown, oracle), []).append(error)

    yield record


@pytest.fixture
def record_steps(request: pytest.FixtureRequest) -> Callable[[str, str, float, float], None]:
    """Return a function that records a quantized case.

    It takes the operator, the oracle, the largest difference in steps, and the fraction of equal elements.
    """
    steps = request.config.stash.setdefault(STEPS, {})

    def record(operator: str, oracle: str, most: float, equal: float) -> None:
        steps.setdefault((operator, oracle), []).append((most, equal))

    return record


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker process, send the figures to the main process."""
    worker_output = getattr(session.config, "workeroutput", None)
    if worker_output is not None:
        worker_output["figures"] = list(session.config.stash.get(FIGURES, {}).items())
        worker_output["steps"] = list(session.config.stash.get(STEPS, {}).items())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    worker_output = getattr(node, "workeroutput", {})
    figures, steps = node.config.stash.setdefault(FIGURES, {}), node.config.stash.setdefault(STEPS, {})
    for key, errors in worker_output.get("figures", ()):
        figures.setdefault(tuple(key), []).extend(errors)
    for key, cases in worker_output.get("steps", ()):
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
