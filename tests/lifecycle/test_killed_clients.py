"""Clients that are killed leave nothing in the daemon. `benchmarks/kill_clients.py` kills a thousand."""

from conftest import StartDaemon
from killed_clients import LEASE_S, kill_clients
from observer import Observer
from part import examples

WARM_UP = 12
CLIENTS = examples(60)


def test_a_daemon_holds_nothing_of_killed_clients(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--lease-s", str(LEASE_S))
    with Observer(daemon.address) as observer:
        kill_clients(daemon, observer, WARM_UP)
        aftermath = kill_clients(daemon, observer, CLIENTS, seed=1)
    assert aftermath.most.sessions > 1
    assert aftermath.most.mappings > 0
    assert aftermath.is_clean, aftermath
    assert "Traceback" not in daemon.log(), daemon.log()
