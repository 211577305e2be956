"""A pool over several hosts, of which one is cut off, slow, or gone."""

import signal
from collections.abc import Iterator

import pytest
from daemon_process import DaemonProcess
from waiting import until

from hosts.conftest import StartApplication
from hosts.network import Host, Network

pytestmark = pytest.mark.slow

HOSTS = 3
# What is lost is noticed soon, and given up soon, for there are others.
SETTINGS = {"heartbeat_timeout_s": 0.5, "connect_timeout_s": 2.0, "reconnect_timeout_s": 0.5}
DAEMON = ("--heartbeat-timeout-s", "1")


@pytest.fixture
def devices(network: Network) -> list[Host]:
    return [network.host() for _ in range(HOSTS)]


@pytest.fixture
def daemons(devices: list[Host]) -> Iterator[list[DaemonProcess]]:
    daemons: list[DaemonProcess] = []
    try:
        for number, host in enumerate(devices):
            daemons.append(host.daemon(*DAEMON, "--name", f"host{number}"))
        yield daemons
    finally:
        for daemon in daemons:
            daemon.kill()


def test_a_host_that_is_cut_off_fails_no_run(
    network: Network, devices: list[Host], daemons: list[DaemonProcess], application: StartApplication
) -> None:
    """Runs that it had are made again elsewhere. It comes back, and the others may go."""
    client = application(network.host(), *(daemon.address for daemon in daemons), **SETTINGS)
    client.do("load", HOSTS)
    client.do("begin", 6)
    client.do("ran", 60)
    devices[0].cut_off()
    client.do("ready", HOSTS - 1)
    client.do("ran", 60)
    devices[0].join()
    client.do("ready", HOSTS)
    for device in devices[1:]:
        device.cut_off()
    client.do("ready", 1)
    client.do("ran", 60)
    assert client.do("end").keys() == {"right"}


def test_a_host_that_is_gone_fails_no_run(
    network: Network, devices: list[Host], daemons: list[DaemonProcess], application: StartApplication
) -> None:
    """Its power fails: no connection is closed, and another daemon is there afterwards."""
    client = application(network.host(), *(daemon.address for daemon in daemons), **SETTINGS)
    client.do("load", HOSTS)
    client.do("begin", 6)
    client.do("ran", 60)
    devices[1].cut_off()
    daemons[1].send(signal.SIGKILL)
    client.do("ready", HOSTS - 1)
    client.do("ran", 60)
    port = int(daemons[1].address.rpartition(":")[2])
    daemons.append(devices[1].daemon(*DAEMON, "--name", "host1", port=port))
    devices[1].join()
    client.do("ready", HOSTS)
    client.do("ran", 60)
    assert client.do("end").keys() == {"right"}


def test_a_slow_host_gets_less(
    network: Network, devices: list[Host], daemons: list[DaemonProcess], application: StartApplication
) -> None:
    """Its link is; it fails no run and keeps nobody from the others."""
    client = application(network.host(), *(daemon.address for daemon in daemons), **SETTINGS)
    client.do("load", HOSTS)
    devices[2].slow_down("2mbit")
    client.do("begin", 6, 5_000)
    *others, slow = (daemon.address for daemon in daemons)

    def gets_less() -> bool:
        client.do("ran", 100)
        runs = client.do("runs")
        return bool(runs[slow] < min(runs[other] for other in others))

    until(gets_less)
    assert client.do("end").keys() == {"right"}
