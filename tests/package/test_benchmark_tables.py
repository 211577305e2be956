"""The tables of `make bench`: figures in a row belong together."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("pairs", "cells"),
    [
        # The medians of the sides are 30 and 87.
        ([(17, 87), (30, 60), (40, 200)], ("40", "200", "5.00", "2.00..5.12")),
        ([(10, 90), (30, 60), (50, 200)], ("50", "200", "4.00", "2.00..9.00")),
        ([(0.0912, 0.4561), (0.1, 0.6), (0.1, 0.45), (1, 9)], ("0.0912", "0.456", "5.00", "4.63..8.25")),
    ],
)
def test_a_ratio_is_that_of_its_figures(
    pairs: list[tuple[float, float]], cells: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the round with the median ratio, and with enough digits to be divided."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.delitem(sys.modules, "harness", raising=False)
    from harness import pair_cells

    assert pair_cells(pairs) == cells
    first, second, ratio, _ = cells
    assert float(second) / float(first) == pytest.approx(float(ratio), rel=0.005)
