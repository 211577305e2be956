"""Daemons of a pool, and a home of its own for each test."""

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess

Fleet = Callable[..., list[DaemonProcess]]


@pytest.fixture
def fleet(start_daemon: StartDaemon, tmp_path: Path) -> Fleet:
    """Starts so many daemons, which differ in their names; on sockets, so that they can come back."""

    def start(count: int, *arguments: str) -> list[DaemonProcess]:
        return [
            start_daemon("--name", f"d{number}", *arguments, listen=f"unix:{tmp_path / str(number)}")
            for number in range(count)
        ]

    return start


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds what another one has compiled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
