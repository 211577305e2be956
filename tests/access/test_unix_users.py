"""On a Unix socket a client is who the kernel says, whatever it says itself."""

import os
import pwd
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import warm
from conftest import StartDaemon
from daemon_process import DaemonProcess

from access.conftest import move, refusal, works
from nnrt_client import Runtime, Settings
from nnrt_client.session.credentials import ticket_metadata
from nnrt_client.session.device import session_of
from nnrt_device_service.transport.grpc.identities import Identities
from nnrt_device_service.transport.grpc.tickets import Tickets
from nnrt_hdi.access.access_file import AccessFile, Credentials
from nnrt_hdi.access.identity import Identity
from nnrt_hdi.access.unix_users import SHARED_USER
from nnrt_hdi.errors import InvalidFile
from nnrt_hdi.v2 import session_pb2, session_pb2_grpc

OTHER = 4711
# In a process that another user takes over, for the interpreter itself may be out of that user's reach.
# It asks once before, since modules are imported at first use.
CLIENT = """
import os, sys
from nnrt_client import Runtime, NnrtError

def answer():
    with Runtime([sys.argv[1]]) as runtime:
        try:
            return runtime.device().status().name
        except NnrtError as error:
            return str(error)

answer()
os.setresgid({0}, {0}, {0}); os.setresuid({0}, {0}, {0})
print(answer(), flush=True)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user may look into."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def start(start_daemon: StartDaemon, folder: Path, *lines: str) -> DaemonProcess:
    access = folder / "access"
    access.write_text("\n".join(lines))
    daemon = start_daemon("--access", str(access), listen=f"unix:{folder}/s")
    (folder / "s").chmod(0o777)
    return daemon


def as_other(address: str, user: int = OTHER) -> str:
    environment = {**os.environ, "HOME": "/"}
    command = [sys.executable, "-c", CLIENT.format(user), address]
    return warm.run(command, capture_output=True, text=True, timeout=60, env=environment).stdout.strip()


def test_a_user_of_the_access_file(start_daemon: StartDaemon, folder: Path) -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    daemon = start(start_daemon, folder, f"me compile user {me}")
    works(daemon.address, Settings())
    works(daemon.address, Settings(share_memory=False))
    daemon.kill()
    daemon = start(start_daemon, folder, "other compile user 4242")  # The killed one has left its sockets there.
    assert f"the kernel says Unix user {os.getuid()}, whom the daemon's --access file" in refusal(
        daemon.address, Settings()
    )


def test_who_asks_no_kernel_is_nobody(start_daemon: StartDaemon, folder: Path) -> None:
    """Also with a ticket that was used, or made up."""
    daemon = start(start_daemon, folder, f"me compile user {os.getuid()}")
    used = ticket_metadata(daemon.address, 10)
    with grpc.insecure_channel(daemon.address) as channel:
        opener = session_pb2_grpc.DeviceSessionStub(channel)
        hello = session_pb2.SessionRequest(hello=session_pb2.Hello(user=str(os.getuid())))
        assert next(opener.Open(iter([hello]), metadata=used)).HasField("welcome")
        for metadata in ((), used, (("nnrt-ticket-bin", b"x" * 32),)):
            with pytest.raises(grpc.RpcError) as refused:
                next(opener.Open(iter([hello]), metadata=metadata))
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert "the client sent no token" in refused.value.details()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user(start_daemon: StartDaemon, folder: Path) -> None:
    daemon = start(start_daemon, folder, f"me compile user {os.getuid()}", f"guest observe user {OTHER}")
    assert as_other(daemon.address) == "AVAILABLE"
    (folder / "new").write_text(f"me compile user {os.getuid()}\n")
    move(folder / "new", folder / "access")
    assert f"the kernel says Unix user {OTHER}, whom" in as_other(daemon.address)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_local_socket_is_for_the_same_user(start_daemon: StartDaemon, folder: Path) -> None:
    daemon = start(start_daemon, folder, f"me compile user {os.getuid()}")
    with Runtime([daemon.address], Settings(share_memory=False)) as runtime:
        welcome = session_of(runtime.device()).welcome
        attach = f"""
import os, socket
from nnrt_hdi.v2 import local_socket_pb2
os.setresuid({OTHER}, {OTHER}, {OTHER})
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(b"\\0" + {welcome.local_socket!r})
request = local_socket_pb2.LocalRequest(attach=dict(session_id={welcome.session_id!r}))
connection.send(request.SerializeToString())
print(local_socket_pb2.LocalReply.FromString(connection.recv(65536)).error.message)
"""
        done = warm.run([sys.executable, "-c", attach], capture_output=True, text=True, timeout=60)
        assert f"the session is of user {os.getuid()}, not of {OTHER}" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_who_is_many(start_daemon: StartDaemon, folder: Path) -> None:
    """The kernel says one number of all whom the daemon's user namespace doesn't know; it is nobody's identity."""
    daemon = start(start_daemon, folder, f"me compile user {os.getuid()}")
    assert "as of all users that the daemon's user namespace doesn't know; it may be anybody, whom" in as_other(
        daemon.address, SHARED_USER
    )
    assert Credentials("unix", user_id=SHARED_USER).identity() == Identity("host", "unix")
    (folder / "wrong").write_text(f"many run user {SHARED_USER}")
    with pytest.raises(InvalidFile, match="user namespace doesn't know: give the client a token"):
        AccessFile(folder / "wrong")


def test_tickets_of_the_absent_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are forgotten when others are given one."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    tickets = Tickets()
    for user in range(1000):
        now += 1
        ticket = tickets._new(user)
    assert len(tickets._given) < 100
    assert tickets.redeem(ticket) == 999


def test_tickets_end(folder: Path) -> None:
    """Each counts once, and so many of a user at a time."""
    tickets = Tickets()
    tickets.listen(f"{folder}/s")
    try:
        first, *others = (ticket_metadata(f"unix:{folder}/s", 10)[0][1] for _ in range(257))
        assert isinstance(first, bytes)
        assert tickets.redeem(first) is None  # It gave way.
        for ticket in others:
            assert isinstance(ticket, bytes)
            assert tickets.redeem(ticket) == os.getuid()
            assert tickets.redeem(ticket) is None
    finally:
        tickets.stop()
    assert not list(folder.iterdir())
    assert ticket_metadata(f"unix:{folder}/s", 10) == ()


def test_who_hangs_up_on_the_tickets(folder: Path) -> None:
    """has nobody else wait."""
    tickets = Tickets()
    tickets.listen(f"{folder}/s")
    try:
        began = time.monotonic()
        for _ in range(100):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(f"{folder}/s.who")
        assert ticket_metadata(f"unix:{folder}/s", 10)
        assert time.monotonic() - began < 5
    finally:
        tickets.stop()


class Call:
    """A call as far as it tells who makes it."""

    def __init__(self, peer: str, metadata: tuple[tuple[str, str | bytes], ...]) -> None:
        self.peer = lambda: peer
        self.invocation_metadata = lambda: metadata
        self.auth_context = dict[str, list[bytes]]


def test_a_ticket_counts_on_unix_sockets_only(folder: Path) -> None:
    tickets = Tickets()
    tickets.listen(f"{folder}/s")
    try:
        identities, shown = Identities(None, tickets), ticket_metadata(f"unix:{folder}/s", 10)
    finally:
        tickets.stop()
    assert identities.identify(Call("ipv4:192.0.2.1:1024", shown)) == Identity("host", "192.0.2.1")
    assert identities.identify(Call("unix:", shown)) == Identity("user", str(os.getuid()))
