"""What a signal handler raises reaches the caller, whatever the run is doing; a handler may close what is running.

NNRT_RAISED_IN_HANDLERS is how many errors of each kind are raised in each way to run: 1000 for a thorough test.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from access.conftest import Fleet
from daemon_process import DaemonProcess
from part import examples
from raising_process import KINDS, WAYS, verdict_of

WANTED = int(os.environ.get("NNRT_RAISED_IN_HANDLERS", examples(15)))
pytestmark = pytest.mark.timeout(120 + 2 * WANTED)


@pytest.fixture(scope="module")
def tls_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DaemonProcess, Fleet]]:
    fleet = Fleet(tmp_path_factory.mktemp("fleet") / "keys")
    daemon = DaemonProcess("--backend", "cached", *fleet.flags)
    yield daemon, fleet
    daemon.kill()


@pytest.fixture(params=["local", "grpc", "tls"])
def way_there(
    request: pytest.FixtureRequest, cached_daemon: DaemonProcess, tls_daemon: tuple[DaemonProcess, Fleet]
) -> tuple[str, dict[str, Any]]:
    """Address and settings."""
    daemon, fleet = tls_daemon
    if request.param == "tls":
        return daemon.address, {"share_memory": False, "tls_ca": fleet.ca}
    return cached_daemon.address, {"share_memory": request.param == "local"}


@pytest.mark.slow
@pytest.mark.parametrize("size", ["small", "large"])
def test_all_that_handlers_raise_reaches_the_caller(way_there: tuple[str, dict[str, Any]], size: str) -> None:
    address, settings = way_there
    signals = WANTED * len(KINDS) * len(WAYS)
    verdict = verdict_of(address, "raising", WANTED, signals, size=size, settings=settings)
    assert not (verdict["lost"] or verdict["faults"] or verdict["stderr"]), verdict
    assert verdict["raised"] >= signals


@pytest.mark.slow
@pytest.mark.parametrize("what", ["executor", "runtime"])
@pytest.mark.parametrize("size", ["small", "large"])
def test_a_handler_closes_what_runs(way_there: tuple[str, dict[str, Any]], size: str, what: str) -> None:
    address, settings = way_there
    wanted = 4 * WANTED if what == "executor" else WANTED
    verdict = verdict_of(address, "closing", wanted, 10 * wanted, size=size, closes=what, settings=settings)
    assert verdict == {"closed": wanted, "stderr": ""}
