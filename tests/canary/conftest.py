"""Fixture that keeps the duration of matrix products stable."""

import pytest


@pytest.fixture(autouse=True)
def one_thread_for_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make NumPy use one thread, because its threads delay each other on a busy machine."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
