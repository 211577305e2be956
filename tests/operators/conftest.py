"""Figures of the comparison with oracles, shown at the end of a test run."""

from collections.abc import Callable, Iterator

import pytest

Figures = dict[tuple[str, str, str], list[float]]
FIGURES = pytest.StashKey[Figures]()


@pytest.fixture
def record_error(request: pytest.FixtureRequest) -> Iterator[Callable[[str, str, str, float], None]]:
    """Takes operator, data type, oracle and relative error of a case; types that don't round count as one."""
    figures = request.config.stash.setdefault(FIGURES, {})

    def record(operator: str, dtype: str, oracle: str, error: float) -> None:
        shown = dtype if dtype.startswith("float") else "exact"
        figures.setdefault((operator, shown, oracle), []).append(error)

    yield record


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures = config.stash.get(FIGURES, {})
    if not figures:
        return
    terminalreporter.section("reference kernels against their oracles")
    terminalreporter.write_line(f"{'operator':<26} {'dtype':<8} {'cases':>5} {'worst error':>12}  oracle")
    for (operator, dtype, oracle), errors in sorted(figures.items()):
        terminalreporter.write_line(f"{operator:<26} {dtype:<8} {len(errors):>5} {max(errors):>12.1e}  {oracle}")
