"""Refusals again and again: they fill no log, strangers wait for them, and nobody else does."""

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from conftest import StartDaemon

from access.conftest import Access, start, works
from access.test_audit import lines
from nnrt_hdi.access.audit import AuditLog
from nnrt_hdi.access.refusals import BURST, DELAY_S, MOST_SOURCES, OTHERS, RESERVE, Refusals
from nnrt_hdi.v2 import session_pb2_grpc

GUESSES, MANY_GUESSES = 40, 320
DEADLINE_S = 30.0


class Guesser:
    """A client that tries tokens on one connection."""

    def __init__(self, address: str) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        self.channel = grpc.insecure_channel(address, options=options)
        self._open = session_pb2_grpc.DeviceSessionStub(self.channel).Open

    def guess(self) -> Any:
        """Open a session with a wrong token; the call."""
        return self._open(iter(()), metadata=[("authorization", "Bearer wrong")], timeout=DEADLINE_S)


@contextmanager
def guesser(address: str) -> Iterator[Guesser]:
    made = Guesser(address)
    with made.channel:
        yield made


def refused(call: Any) -> bool:
    return bool("knows no such token" in call.details())


def test_guesses_wait_and_are_counted(start_daemon: StartDaemon, access: Access, tmp_path: Path) -> None:
    """Whoever has a right token gets in all the while, from the same address; another address is told at once."""
    log, alice, path = tmp_path / "audit", access.add("alice", "compile"), tmp_path / "s"
    daemon = start(start_daemon, access, "--audit-log", str(log), "--listen", f"unix:{path}")
    tcp, unix = daemon.addresses
    with guesser(tcp) as stranger, guesser(unix) as other:
        calls = [stranger.guess() for _ in range(GUESSES)]
        works(tcp, alice)
        assert all(map(refused, calls))
        began = time.monotonic()
        assert refused(stranger.guess())
        assert time.monotonic() - began >= DELAY_S
        assert refused(other.guess())
        works(tcp, alice)
    said = Counter(str(line["peer"]).partition(":")[0] for line in lines(log) if line["event"] == "refused")
    assert said["unix"] == 1
    daemon.send(signal.SIGTERM)
    daemon.wait()
    (counted,) = (line for line in lines(log) if line["event"] == "refusals counted")
    assert counted["source"] == "host 127.0.0.1"
    assert said["ipv4"] + counted["count"] == GUESSES + 1
    assert BURST <= said["ipv4"] < GUESSES / 2


def test_many_sources_take_little_memory_and_few_lines(tmp_path: Path) -> None:
    log = tmp_path / "audit"
    audit = AuditLog(str(log))
    made = Refusals(audit, most_waiting=1)
    most = 4 * MOST_SOURCES
    for _ in range(2):
        for number in range(most):
            for _ in range(BURST):
                made.audit(f"host {number}", None)
    assert len(made) == MOST_SOURCES + 1
    made.summarize(is_last=True)
    audit.close()
    counted = {line["source"]: line["count"] for line in lines(log) if line["event"] == "refusals counted"}
    audited = sum(line["event"] == "refused" for line in lines(log))
    assert audited + sum(counted.values()) == 2 * most * BURST
    assert OTHERS in counted
    assert len(counted) == MOST_SOURCES + 1
    assert audited < (MOST_SOURCES + 1) * 2 * BURST


def test_a_source_that_rests_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And may fill a line after some seconds already."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    audit = AuditLog(str(tmp_path / "audit"))
    made = Refusals(audit, most_waiting=1)
    assert [made.audit("host 1", None) for _ in range(BURST + 1)] == [True] * BURST + [False]
    now = 11.0
    assert [made.audit("host 1", None) for _ in range(2)] == [True, False]
    assert made.audit("host 2", None)
    made.summarize()
    assert "counted" not in (tmp_path / "audit").read_text(), "it is told once a minute"
    now = 61.0
    made.summarize()
    told = json.loads((tmp_path / "audit").read_text().splitlines()[-1])
    assert (told["source"], told["count"], told["seconds"]) == ("host 1", 2, 61.0)
    assert len(made) == 1
    now = 200.0
    made.summarize()
    assert len(made) == 0
    audit.close()


def test_few_have_places_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the others a few are looked at in each second, in which an honest client of their source gets in."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    made = Refusals(AuditLog(""), most_waiting=0)
    with (
        made.reserve_wait("host 1") as first,
        made.reserve_wait("host 1") as second,
        made.reserve_wait("host 2") as other,
    ):
        assert (first, second, other) == (True, False, True)
        assert [made.may_check("host 1") for _ in range(RESERVE + 1)] == [True] * RESERVE + [False]
        assert made.may_check("host 2")
        now = 1.0
        assert [made.may_check("host 1") for _ in range(RESERVE + 1)] == [True] * RESERVE + [False]
    with made.reserve_wait("host 1") as again:
        assert again


def test_no_source_has_all_places() -> None:
    made = Refusals(AuditLog(""), most_waiting=1000)
    with ExitStack() as places:
        while places.enter_context(made.reserve_wait("host 1")):
            pass
        assert places.enter_context(made.reserve_wait("host 2"))


def test_many_guesses_at_a_time(start_daemon: StartDaemon, access: Access) -> None:
    """Most tokens are not even looked at, on however many calls they come."""
    alice, most_places = access.add("alice", "compile"), 4
    daemon = start(start_daemon, access, "--host-connections", str(2 * most_places))
    began, said = time.monotonic(), Counter[bool]()
    with guesser(daemon.address) as stranger:
        for _ in range(3):
            calls = [stranger.guess() for _ in range(MANY_GUESSES)]
            said.update(map(refused, calls))
            assert {call.code() for call in calls} <= {
                grpc.StatusCode.UNAUTHENTICATED,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
            }
    took_s = time.monotonic() - began
    assert said[True] <= BURST + (most_places / DELAY_S + RESERVE) * (took_s + 1.0)
    works(daemon.address, alice)
