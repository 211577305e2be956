"""Fixtures: daemons for a pool, and an empty cache for each test."""

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess

Fleet = Callable[..., list[DaemonProcess]]


@pytest.fixture
def fleet(start_daemon: StartDaemon, tmp_path: Path) -> Fleet:
    """Return a function that starts daemons with different names.

    They listen on Unix sockets, so that a restarted daemon has the same address.
    """

    def start(count: int, *arguments: str) -> list[DaemonProcess]:
        return [
            start_daemon("--name", f"d{number}", *arguments, listen=f"unix:{tmp_path / str(number)}")
            for number in range(count)
        ]

    return start


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a temporary cache directory, so that no test finds another's compiled models."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
