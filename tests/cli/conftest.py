"""Fixture that gives each test of a command its own environment."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset NNRT_DEVICES, and use a temporary cache directory."""
    monkeypatch.delenv("NNRT_DEVICES", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
