"""Daemons that announce themselves. All on the loopback interface."""

import errno
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

import numpy as np
import pytest
from daemon_process import DaemonProcess
from waiting import until
from zeroconf import ServiceInfo, Zeroconf
from zeroconf._dns import DNSPointer, DNSRecord
from zeroconf._protocol.outgoing import DNSOutgoing

from nnrt_client import (
    Compilation,
    Device,
    Executor,
    InvalidParameter,
    Model,
    OperationForbidden,
    OperationType,
    Runtime,
    Settings,
)
from nnrt_device_service.announcing.announcer import _reachable
from nnrt_hdi.service_type import SERVICE_TYPE
from resolvers.watching import watched

StartDaemon = Callable[..., DaemonProcess]
NAME = "mdns:///?interface=127.0.0.1"
ANNOUNCED = ("--announce", "--announce-interface", "127.0.0.1")
_GROUP, _PORT = "224.0.0.251", 5353
# Of DNS.
_PTR, _IN, _REPLY = 12, 1, 0x8400


def why_not() -> str:
    """Why nothing can be announced here; empty where it can."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        member = socket.inet_aton(_GROUP) + socket.inet_aton("127.0.0.1")
        try:
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
            probe.sendto(b"", (_GROUP, _PORT))
        except OSError as error:
            return f"no multicast on loopback: {errno.errorcode[error.errno or 0]}"
    return ""


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


def built(device: Device) -> Compilation:
    model = Model()
    x = model.input((1,), name="x")
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.RELU, x)])
    model.finish()
    compilation = Compilation(model, device)
    compilation.build()
    return compilation


@contextmanager
def on_loopback() -> Iterator[Zeroconf]:
    zeroconf = Zeroconf(interfaces=["127.0.0.1"])
    try:
        yield zeroconf
    finally:
        zeroconf.close()
        assert zeroconf.loop is not None
        zeroconf.loop.close()  # Not all versions do.


@contextmanager
def announced(*addresses: str, port: int = 1, label: str = "a device") -> Iterator[None]:
    """A service of somebody's, until the end of the block."""
    info = ServiceInfo(
        SERVICE_TYPE, f"{label}.{SERVICE_TYPE}", port=port, parsed_addresses=list(addresses), server=f"{port}.local."
    )
    with on_loopback() as zeroconf:
        zeroconf.register_service(info, cooperating_responders=True)
        yield
        zeroconf.unregister_service(info)


def test_a_daemon_comes_and_drains(start_daemon: StartDaemon) -> None:
    with watched(NAME) as told:
        daemon = start_daemon(*ANNOUNCED)
        told.wait_until_listed(daemon.address)
        daemon.send(signal.SIGTERM)
        told.wait_until_absent(daemon.address)
        assert daemon.wait() == 0


def test_one_that_drains_withdraws_before_it_ends(start_daemon: StartDaemon) -> None:
    """With work under way, which it finishes."""
    daemon = start_daemon(*ANNOUNCED, "--backend", "slow")
    with Runtime([daemon.address]) as runtime, watched(NAME) as told:
        told.wait_until_listed(daemon.address)
        with Executor(built(runtime.device())) as executor:
            under_way = executor.submit([np.zeros(1, np.float32)])
            until(lambda: runtime.device().state.running)
            daemon.send(signal.SIGTERM)
            told.wait_until_absent(daemon.address)
            assert not under_way.done()
            under_way.cancel()


def test_those_that_were_there_before(start_daemon: StartDaemon) -> None:
    daemons = [start_daemon(*ANNOUNCED, "--name", name) for name in ("first", "se.co\x1bnd")]
    with Runtime([NAME]) as runtime:
        until(lambda: set(runtime.addresses) >= {daemon.address for daemon in daemons}, lambda: runtime.addresses)
        assert {device.info.device_name for device in runtime.devices()} >= {"first", "se.co\x1bnd"}


def test_what_it_says_of_itself(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(*ANNOUNCED, "--name", "ü" * 120)
    with on_loopback() as zeroconf, watched(NAME) as told:
        told.wait_until_listed(daemon.address)
        info = until(lambda: _info_in(zeroconf, "ü"))
    assert info is not None
    assert [f"{ip}:{info.port}" for ip in info.parsed_addresses()] == [daemon.address]
    said = info.decoded_properties
    assert set(said) == {"name", "backend", "kind", "version"}
    assert said["name"] == "ü" * 120
    assert said["kind"] == "CPU"
    assert (said["backend"] or "").startswith("reference ")


def _info_in(zeroconf: Zeroconf, label: str) -> ServiceInfo | None:
    for record in zeroconf.cache.entries_with_name(SERVICE_TYPE):
        assert isinstance(record, DNSPointer)
        if record.alias.startswith(label):
            info = ServiceInfo(SERVICE_TYPE, record.alias)
            return info if info.load_from_cache(zeroconf) else None
    return None


def test_one_address_of_each() -> None:
    """A daemon is one device, however many addresses its host has."""
    with watched(NAME) as told, announced("192.0.2.77", "127.0.0.1", "fd00:9::77", port=77):
        told.wait_until_listed("192.0.2.77:77")
        assert not {"127.0.0.1:77", "[fd00:9::77]:77"} & set(told.lists[-1])


@pytest.mark.slow
def test_what_makes_no_sense_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever comes from the link, the others are found."""
    with watched(NAME) as told:
        send_records(
            DNSPointer(SERVICE_TYPE, _PTR, _IN, 120, f"\x1b[2J.{SERVICE_TYPE}"),
            DNSPointer(SERVICE_TYPE, _PTR, _IN, 120, f"silent.{SERVICE_TYPE}"),
            DNSPointer(SERVICE_TYPE, _PTR, _IN, 120, "of-another-type._http._tcp.local."),
            DNSPointer(SERVICE_TYPE, _PTR, _IN, 120, SERVICE_TYPE),
        )
        with announced("127.0.0.9", port=0, label="no port"), announced("127.0.0.1", port=9):
            told.wait_until_listed("127.0.0.1:9")
            assert "127.0.0.9:0" not in told.lists[-1]
    assert not told.failures
    assert not caplog.records


def send_records(*records: DNSRecord) -> None:
    """Say this on the link, as anybody may."""
    reply = DNSOutgoing(_REPLY)
    for record in records:
        reply.add_answer_at_time(record, 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        link.bind(("127.0.0.1", _PORT))
        for packet in reply.packets():
            link.sendto(packet, (_GROUP, _PORT))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("mdns:///device", "it stands for all daemons on the link"),
        ("mdns:///?interface=eth0", "interface is 'eth0'; give the IP address"),
        ("mdns:///?every=1", "mdns has no option 'every'"),
    ],
)
def test_what_is_wrong_with_a_name(name: str, why: str) -> None:
    with pytest.raises(InvalidParameter, match=why):
        Runtime([name])


def test_a_token_is_shown_to_no_stranger(tmp_path: Path) -> None:
    with pytest.raises(OperationForbidden, match="shown to whoever announces a daemon; set tls_ca"):
        Runtime([NAME], Settings(token_file=str(tmp_path / "token")))


def test_an_interface_that_is_not_here() -> None:
    with watched("mdns:///?interface=192.0.2.99") as told:
        until(lambda: told.failures)
    assert "no interface of this host has the address 192.0.2.99" in told.failures[0].message


@pytest.mark.slow
def test_a_daemon_says_where_it_cannot_be_announced(tmp_path: Path) -> None:
    """And doesn't start: whoever wants it announced counts on it."""
    with pytest.raises(RuntimeError, match=r"no announcing on 192.0.2.99"):
        DaemonProcess("--announce", "--announce-interface", "192.0.2.99")
    with pytest.raises(RuntimeError, match="it listens on no HOST:PORT"):
        DaemonProcess("--announce", listen=f"unix:{tmp_path}/socket")


def test_what_is_announced_of_the_addresses(tmp_path: Path) -> None:
    """What other hosts reach, unless there is nothing of that."""
    assert _reachable(["127.0.0.1:1", f"unix:{tmp_path}/d", "192.0.2.7:2"]) == ([IPv4Address("192.0.2.7")], 2)
    assert IPv4Address("127.0.0.1") in _reachable(["localhost:1"])[0]
    ips, port = _reachable(["0.0.0.0:1"])
    assert port == 1
    assert not any(ip.is_unspecified for ip in ips)
    assert not any(ip.is_loopback for ip in ips) or all(ip.is_loopback for ip in ips)
