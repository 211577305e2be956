"""Ctrl-C and other exceptions from signal handlers: only the interrupted run is lost."""

from collections.abc import Iterator
from typing import Any

import pytest
from daemon_process import DaemonProcess
from interrupted_process import verdict_of
from part import examples

WAYS = ["run_sync", "with_tensors", "submit", "run_async"]

on_each_carrier = pytest.mark.parametrize("share_memory", [True, False], ids=["local", "grpc"])


@pytest.fixture(scope="module")
def narrow_daemon() -> Iterator[DaemonProcess]:
    """Identity daemon whose sessions have one stream for runs: losing it would block everything."""
    daemon = DaemonProcess("--backend", "cached", "--session-streams", "3")
    yield daemon
    daemon.kill()


@pytest.fixture(scope="module")
def steady_daemon() -> Iterator[DaemonProcess]:
    """Identity daemon with slow runs, so that an interrupt mostly hits a wait."""
    daemon = DaemonProcess("--backend", "steady", "--option", "seconds=0.03", "--concurrent-runs", "4")
    yield daemon
    daemon.kill()


def require_unharmed(daemon: DaemonProcess, what: str, **arguments: Any) -> int:
    """Interrupt a client, check that it still works, and return the number of interrupts."""
    verdict = verdict_of(daemon.address, what, **arguments)
    assert (verdict["faults"], verdict["threads"]) == ([], [])
    return int(verdict["interrupts"])


@pytest.mark.slow
@on_each_carrier
@pytest.mark.parametrize(
    ("way", "timeout_ms"),
    [("run_sync", None), ("run_sync", 20_000), ("with_tensors", None), ("submit", None), ("run_async", 20_000)],
)
def test_interrupts_at_random_moments(
    cached_daemon: DaemonProcess, share_memory: bool, way: str, timeout_ms: int | None
) -> None:
    """Other threads run the model meanwhile, undisturbed. Later runs end with their own results."""
    require_unharmed(
        cached_daemon,
        "at_random",
        share_memory=share_memory,
        way=way,
        action="interrupt",
        timeout_ms=timeout_ms,
        wanted=examples(300),
        apart_s=(0.0002, 0.003),
    )


@pytest.mark.slow
def test_interrupts_while_streams_are_given_up(cached_daemon: DaemonProcess) -> None:
    """The interrupt comes while the main thread claims a stream that another thread is about to give up."""
    require_unharmed(
        cached_daemon,
        "at_random",
        share_memory=True,
        way="with_tensors",
        action="interrupt",
        hesitates_in=["close", "give_up"],
        wanted=examples(300),
        apart_s=(0.0002, 0.003),
    )


@pytest.mark.slow
@on_each_carrier
@pytest.mark.parametrize("action", ["interrupt", "run"])
def test_interrupts_of_a_wait(steady_daemon: DaemonProcess, share_memory: bool, action: str) -> None:
    """For runs with a timeout; by Ctrl-C, or by a handler that runs the model itself."""
    require_unharmed(
        steady_daemon,
        "at_random",
        share_memory=share_memory,
        way="run_sync",
        action=action,
        timeout_ms=10_000,
        wanted=30,
        apart_s=(0.001, 0.04),
    )


@pytest.mark.slow
@on_each_carrier
@pytest.mark.parametrize(
    ("way", "action"), [*((way, "interrupt") for way in WAYS), ("run_sync", "out of memory"), ("run_sync", "run")]
)
def test_interrupts_at_each_point(narrow_daemon: DaemonProcess, share_memory: bool, way: str, action: str) -> None:
    """Between any two steps of a run, also between a lock and its `try`; the handler raises, or runs the model."""
    points = require_unharmed(narrow_daemon, "at_each_point", share_memory=share_memory, way=way, action=action)
    assert points > 20
