"""A session between two hosts, one of which is cut off, slow, or loses power."""

import signal
from collections.abc import Iterator

import pytest
from daemon_process import DaemonProcess

from hosts.conftest import StartApplication
from hosts.network import Host, Network

pytestmark = pytest.mark.slow

# The client notices a lost connection soon, and tries to reconnect as long as a test lasts.
SOON = {"heartbeat_timeout_s": 0.5, "connect_timeout_s": 2.0}
PATIENT = {**SOON, "reconnect_timeout_s": 60.0}
IMPATIENT = {**SOON, "reconnect_timeout_s": 1.0}
DAEMON = ("--heartbeat-timeout-s", "1", "--lease-s", "60")


@pytest.fixture
def device(network: Network) -> Host:
    return network.host()


@pytest.fixture
def daemon(device: Host) -> Iterator[DaemonProcess]:
    daemon = device.daemon(*DAEMON)
    yield daemon
    daemon.kill()


def test_a_cut_is_survived(
    network: Network, device: Host, daemon: DaemonProcess, application: StartApplication
) -> None:
    """Runs in flight wait until the hosts reach each other again, and every result is right."""
    client = application(network.host(), daemon.address, **PATIENT)
    client.do("load", 0)
    client.do("begin", 4)
    client.do("ran", 20)
    for _ in range(2):
        device.cut_off()
        client.do("lost")
        device.join()
        client.do("attached")
        client.do("ran", 20)
    assert client.do("end").keys() == {"right"}


def test_a_cut_that_lasts_ends_everything(
    network: Network, device: Host, daemon: DaemonProcess, application: StartApplication
) -> None:
    """No run hangs: each ends with the right exception class."""
    client = application(network.host(), daemon.address, **IMPATIENT)
    client.do("load", 0)
    client.do("begin", 4)
    client.do("ran", 20)
    device.cut_off()
    client.do("dead")
    client.do("ran", 8)
    assert client.do("end").keys() == {"right", "UnavailableDevice"}


def test_a_host_that_comes_back_is_another(
    network: Network, device: Host, daemon: DaemonProcess, application: StartApplication
) -> None:
    """The host loses power silently; when it answers again, it knows no session."""
    client = application(network.host(), daemon.address, **PATIENT)
    client.do("load", 0)
    assert client.do("run") == {"outcome": "right"}
    device.cut_off()
    daemon.send(signal.SIGKILL)
    client.do("lost")
    again = device.daemon(*DAEMON, port=int(daemon.address.rpartition(":")[2]))
    try:
        client.begin("run")
        device.join()
        assert client.answer() == {"outcome": "UnavailableDevice"}
        client.do("load", 0)
        assert client.do("run") == {"outcome": "right"}
    finally:
        again.kill()


def test_a_slow_link_is_no_lost_one(
    network: Network, device: Host, daemon: DaemonProcess, application: StartApplication
) -> None:
    """A transfer takes longer than the heartbeat timeout, but delays no heartbeat."""
    client = application(network.host(), daemon.address, **{**IMPATIENT, "heartbeat_timeout_s": 1.0})
    client.do("load", 0)
    device.slow_down("4mbit")
    assert client.do("run", 250_000) == {"outcome": "right"}  # 2 s in each direction.
    assert client.do("run") == {"outcome": "right"}
    assert client.do("resumed") == {"times": 0}
