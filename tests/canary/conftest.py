"""Daemons whose arithmetic takes about as long each time."""

import pytest


@pytest.fixture(autouse=True)
def one_thread_for_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine numpy's threads wait for each other, ever so much longer than a product takes."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
