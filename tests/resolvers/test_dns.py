"""Names that name servers know."""

import socket
from collections.abc import Iterator

import dns.rcode
import pytest
from waiting import until

from nnrt_client import Settings
from nnrt_client.resolvers.resolver import MOST_ADDRESSES
from resolvers.name_server import NameServer
from resolvers.watching import watched


@pytest.fixture
def server() -> Iterator[NameServer]:
    with NameServer() as server:
        yield server


def test_a_host_of_this_host() -> None:
    with watched("dns:///localhost:50051") as told:
        told.wait_for("127.0.0.1:50051")


def test_an_ip() -> None:
    with watched("dns:///[::1]:50051") as told:
        told.wait_for("[::1]:50051")


def test_a_host_that_is_none() -> None:
    """There is no such name by RFC 6761."""
    with watched("dns:///nobody.invalid:1") as told:
        until(lambda: told.lists or told.failures)
    assert told.lists in ([], [()])  # Where there is no name server to ask, that is a failure.


def test_addresses_come_and_go(server: NameServer) -> None:
    server.say("fleet.test", "A", "10.0.0.2", "10.0.0.10")
    with watched(f"dns://{server.address}/fleet.test:7?every=0.01") as told:
        told.wait_for("10.0.0.2:7", "10.0.0.10:7")
        server.say("fleet.test", "A", "10.0.0.10", "10.0.0.2")
        server.say("fleet.test", "A", "10.0.0.10", "10.0.0.3")
        told.wait_for("10.0.0.3:7", "10.0.0.10:7")
        server.say("fleet.test", "A")
        told.wait_for()
        server.say("fleet.test", "A", "10.0.0.1")
        told.wait_for("10.0.0.1:7")
    assert len(told.lists) == 4  # Another order is no change.


@pytest.mark.parametrize(
    ("family", "addresses"), [("", ["10.0.0.1:7"]), ("?family=4", ["10.0.0.1:7"]), ("?family=6", ["[fd00::1]:7"])]
)
def test_the_family_of_the_addresses(server: NameServer, family: str, addresses: list[str]) -> None:
    server.say("fleet.test", "A", "10.0.0.1").say("fleet.test", "AAAA", "fd00::1")
    with watched(f"dns://{server.address}/fleet.test:7{family}") as told:
        told.wait_for(*addresses)


def test_a_host_with_the_other_family_only(server: NameServer) -> None:
    server.say("fleet.test", "AAAA", "fd00::2", "fd00::1")
    with watched(f"dns://{server.address}/fleet.test:7") as told:
        told.wait_for("[fd00::1]:7", "[fd00::2]:7")


def test_services(server: NameServer) -> None:
    server.say("_nnrt._tcp.test", "SRV", "0 0 50051 one.test.", "10 0 50052 two.test.", "0 0 1 gone.test.")
    server.say("one.test", "A", "10.0.0.1").say("two.test", "AAAA", "fd00::2")
    with watched(f"dns://{server.address}/_nnrt._tcp.test?every=0.01") as told:
        told.wait_for("10.0.0.1:50051", "[fd00::2]:50052")
        server.say("_nnrt._tcp.test", "SRV", "0 0 0 .")
        told.wait_for()


def test_whatever_the_server_says_is_bounded(server: NameServer, caplog: pytest.LogCaptureFixture) -> None:
    server.say("fleet.test", "A", *(f"10.0.{index >> 8}.{index & 255}" for index in range(MOST_ADDRESSES + 1)))
    with watched(f"dns://{server.address}/fleet.test:7?every=0.01") as told:
        until(lambda: told.lists)
        server.say("fleet.test", "A", "10.0.0.1", ttl=0)
        told.wait_for("10.0.0.1:7")
    assert len(told.lists[0]) == MOST_ADDRESSES
    assert caplog.text.count("the others are left out") == 1


@pytest.mark.slow
def test_it_is_asked_again_when_the_answer_expires(server: NameServer) -> None:
    server.say("fleet.test", "A", "10.0.0.1", ttl=1)
    with watched(f"dns://{server.address}/fleet.test:7") as told:
        told.wait_for("10.0.0.1:7")
        server.say("fleet.test", "A", "10.0.0.2", ttl=300)
        told.wait_for("10.0.0.2:7")


@pytest.mark.slow
def test_a_failure_changes_nothing(server: NameServer, caplog: pytest.LogCaptureFixture) -> None:
    server.say("fleet.test", "A", "10.0.0.1")
    with watched(f"dns://{server.address}/fleet.test:7?every=0.01") as told:
        told.wait_for("10.0.0.1:7")
        server.failure = dns.rcode.SERVFAIL
        until(lambda: told.failures)
        questions = len(server.asked)
        until(lambda: len(server.asked) > questions + 1)  # It goes on asking.
        server.failure = None
        server.say("fleet.test", "A", "10.0.0.2")
        told.wait_for("10.0.0.2:7")
    assert told.lists == [("10.0.0.1:7",), ("10.0.0.2:7",)]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "SERVFAIL; 1 known addresses count on" in caplog.records[0].message


def test_a_server_that_is_silent() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        with watched(f"dns://127.0.0.1:{port}/fleet.test:7", Settings(query_timeout_s=0.1)) as told:
            until(lambda: told.failures)
    assert told.lists == []
