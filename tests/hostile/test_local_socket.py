"""The local socket under clients that send what they like: packets, descriptors, and memory that they change."""

import fcntl
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from local_side import Side, memfd, side_of
from model_draft import Draft
from observer import Observer
from raw_client import DEADLINE_S, INPUT, SUM, RawClient, attacked_daemon
from waiting import until
from ways import CHUNKS, INLINE, REGION, Answer, OnLocalSocket, answers_of, ask, describe_runs

from nnrt_device_service.transport.local.connection import LocalConnection
from nnrt_hdi.enums import NodeType, ReturnCode
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.limits import FIRST_CLIENT_BUFFER_ID, LOCAL_PACKET_BYTES
from nnrt_hdi.v2 import device_pb2, local_socket_pb2, prepared_model_pb2
from nnrt_hdi.v2.prepared_model_pb2 import RunPacket

PAGE = mmap.PAGESIZE
ELEMENTS = np.array(INPUT, np.float32)


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with attacked_daemon() as daemon:
        yield daemon


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[RawClient]:
    with RawClient(daemon.address) as client:
        yield client
    with RawClient(daemon.address) as other, side_of(other) as side:  # It lives, and computes.
        assert run(side, prepared(other), 1).tolist() == list(SUM)


def prepared(client: RawClient) -> int:
    return client.prepare_sum()


def frame_of(model_id: int, run_id: int | None = None) -> bytes:
    return describe_runs(model_id, ELEMENTS.shape).frame(ELEMENTS, run_id=run_id, number=0)


def in_region(model_id: int, *regions: tuple[int, int, int], elements: int = len(INPUT)) -> bytes:
    """A frame whose input lies there, and its output, where there are two."""
    places = (REGION, REGION if len(regions) == 2 else INLINE)
    kind = describe_runs(model_id, (elements,), places)
    return kind.frame(regions=[number for region in regions for number in region], number=0)


def answer(side: Side, frame: bytes) -> Answer:
    return ask(OnLocalSocket(side), frame)


def run(side: Side, model_id: int, run_id: int | None = None) -> Any:
    return answer(side, frame_of(model_id, run_id)).floats[: len(INPUT)]


def descriptors_of(daemon: DaemonProcess) -> int:
    return sum(1 for _ in Path(f"/proc/{daemon.pid}/fd").iterdir())


def test_packets_that_are_no_requests(client: RawClient) -> None:
    """Each ends its connection or is refused; the next connection works."""
    model_id = prepared(client)
    sound = frame_of(model_id, 7)
    for number, data in enumerate(
        (b"\xff", b"\x00" * 100, sound[:-1], sound[: len(sound) // 2], b"\x2a\xff\xff\xff\xff\x0f", os.urandom(3000))
    ):
        with side_of(client) as side:
            side.send(data)
            with suppress(NnrtError):
                side.receive()
        with side_of(client) as side:
            assert run(side, model_id, number + 1).tolist() == list(SUM)


def test_mutations_of_requests(client: RawClient) -> None:
    """Any bytes are answered, or end the connection."""
    model_id = prepared(client)
    rng = np.random.default_rng(5)
    with memfd(PAGE) as fd:
        sound = [
            frame_of(model_id, 1),
            in_region(model_id, (1, 0, 12)),
            local_socket_pb2.LocalRequest(share={"length": 64}, released_buffers=[1, 2]).SerializeToString(),
            local_socket_pb2.LocalRequest(map={"buffer_id": 1}).SerializeToString(),
        ]
        side = Side(client.welcome, client.welcome.session_id)
        for _ in range(500):
            data = bytearray(sound[rng.integers(len(sound))])
            for _ in range(rng.integers(1, 5)):
                data[rng.integers(len(data))] = rng.integers(256)
            try:
                side.send(bytes(data[: rng.integers(1, len(data) + 1)]), (fd,) if rng.random() < 0.3 else ())
                ended = side.receive() is None
            except (OSError, NnrtError):
                ended = True
            if ended:
                side.close()
                side = Side(client.welcome, client.welcome.session_id)
        side.close()


def test_a_packet_that_is_too_long(client: RawClient) -> None:
    with side_of(client) as side:
        side.send(bytes(LOCAL_PACKET_BYTES + 1))
        with pytest.raises(NnrtError, match="over 65536 bytes"):
            side.receive()
        assert side.receive() is None


def test_the_wrong_session(client: RawClient) -> None:
    for session_id in (b"", b"x", os.urandom(16), client.welcome.session_id[:-1], client.welcome.session_id + b"\0"):
        side = Side(client.welcome)
        with pytest.raises(NnrtError, match="no such session"):
            side.attach(session_id)
        assert side.receive() is None
        side.close()


def test_requests_before_attach(client: RawClient) -> None:
    for first in (frame_of(1), local_socket_pb2.LocalRequest(released_buffers=[1]).SerializeToString()):
        side = Side(client.welcome)
        try:
            side.send(first)
            with pytest.raises(NnrtError, match=r"first request|can't be decoded"):
                side.receive()
            assert side.receive() is None
        finally:
            side.close()


def test_attaching_twice(client: RawClient) -> None:
    with side_of(client) as side:
        with pytest.raises(NnrtError, match="already"):
            side.attach(client.welcome.session_id)
        assert run(side, prepared(client), 1).tolist() == list(SUM)


def test_another_process_with_the_same_session(client: RawClient) -> None:
    with side_of(client):
        code = (
            "import socket, sys; from nnrt_hdi.v2 import local_socket_pb2 as pb\n"
            "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(30)\n"
            "s.connect(b'\\0' + bytes.fromhex(sys.argv[1]))\n"
            "s.send(pb.LocalRequest(attach={'session_id': bytes.fromhex(sys.argv[2])}).SerializeToString())\n"
            "print(pb.LocalReply.FromString(s.recv(65536)).error.code)"
        )
        names = [client.welcome.local_socket.hex(), client.welcome.session_id.hex()]
        said = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, timeout=DEADLINE_S)
        assert said.stdout.strip() == str(int(ReturnCode.OPERATION_FORBIDDEN)), said.stderr


def test_descriptors_that_are_refused(client: RawClient, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(PAGE))
    reader, writer = os.pipe()
    near, far = socket.socketpair()
    file = os.open(path, os.O_RDWR)
    directory = os.open(tmp_path, os.O_RDONLY)
    null = os.open("/dev/zero", os.O_RDWR)
    try:
        with side_of(client) as side, memfd(PAGE, seals=0) as unsealed, memfd(PAGE - 1) as short:
            for fd in (reader, writer, near.fileno(), file, directory, null, unsealed):
                with pytest.raises(NnrtError, match="F_SEAL_SHRINK"):
                    side.share(fd, PAGE)
            with pytest.raises(NnrtError, match=f"has {PAGE - 1} bytes, not {PAGE}"):
                side.share(short, PAGE)
            for length in (0, (1 << 30) + 1, 1 << 63, (1 << 64) - 1):
                with pytest.raises(NnrtError, match="length is"):
                    side.share(short, length)
            with pytest.raises(NnrtError, match="no descriptor"):
                side.ask(local_socket_pb2.LocalRequest(share={"length": PAGE}))
    finally:
        for fd in (reader, writer, file, directory, null):
            os.close(fd)
        near.close()
        far.close()


def test_huge_pages_are_refused(client: RawClient) -> None:
    """When the host has none left, touching one would end the daemon."""
    with side_of(client) as side:
        try:
            fd = os.memfd_create("huge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
        except OSError:
            pytest.skip("this host has no huge pages")
        try:
            os.ftruncate(fd, 1 << 21)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            with pytest.raises(NnrtError, match="normal pages"):
                side.share(fd, 1 << 21)
        finally:
            os.close(fd)


def test_more_descriptors_than_one(client: RawClient, daemon: DaemonProcess) -> None:
    before = descriptors_of(daemon)
    with memfd(PAGE) as fd:
        for _ in range(20):
            with side_of(client) as side:
                side.send(local_socket_pb2.LocalRequest(share={"length": PAGE}).SerializeToString(), (fd, fd, fd))
                with pytest.raises(NnrtError, match="more than one descriptor"):
                    side.receive()
    until(lambda: descriptors_of(daemon) <= before)


def test_descriptors_that_nobody_asked_for(client: RawClient, daemon: DaemonProcess) -> None:
    model_id = prepared(client)
    with side_of(client) as side, memfd(PAGE) as fd:
        before = descriptors_of(daemon)
        for _ in range(50):
            side.ask(local_socket_pb2.LocalRequest(released_buffers=[1]), (fd,))
        for _ in range(50):
            side.send(frame_of(model_id), (fd,))
            assert side.receive_packet()
        assert descriptors_of(daemon) < before + 10  # gRPC opens and closes some of its own.


def test_descriptors_with_empty_packets(client: RawClient, daemon: DaemonProcess) -> None:
    before = descriptors_of(daemon)
    with memfd(PAGE) as fd:
        for session_id in [client.welcome.session_id, None] * 20:
            side = Side(client.welcome, session_id)
            side.send(b"", (fd,))
            assert side.receive() is None
            side.close()
    until(lambda: descriptors_of(daemon) <= before)


def test_descriptors_of_unattached_connections(client: RawClient, daemon: DaemonProcess) -> None:
    """One that comes with the first request is nobody's, whether the session is known or not."""
    before = descriptors_of(daemon)
    with memfd(PAGE) as fd:
        for session_id in (b"x", client.welcome.session_id) * 25:
            side = Side(client.welcome)
            side.send(local_socket_pb2.LocalRequest(attach={"session_id": session_id}).SerializeToString(), (fd,))
            with suppress(NnrtError):
                side.receive()
            side.close()
    until(lambda: descriptors_of(daemon) < before + 10)  # gRPC opens and closes some of its own.


def test_descriptors_that_are_not_taken(closing: ExitStack) -> None:
    """The kernel drops them: a daemon that has room for none gets none with what needs none."""
    daemon = closing.enter_context(attacked_daemon())
    client = closing.enter_context(RawClient(daemon.address))
    fd = closing.enter_context(memfd(PAGE))
    unattached, attached = Side(client.welcome), closing.enter_context(side_of(client))
    closing.callback(unattached.close)
    release = local_socket_pb2.LocalRequest(released_buffers=[1])
    assert attached.ask(release).done
    limits = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        assert attached.ask(release, (fd,)).done
        with pytest.raises(NnrtError, match="no room for it"):
            attached.share(fd, PAGE)
        attach = local_socket_pb2.LocalRequest(attach={"session_id": client.welcome.session_id})
        assert unattached.ask(attach, (fd,)).done
    finally:
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, limits)


def test_another_thread_leads_before_a_descriptor_is_looked_at(closing: ExitStack) -> None:
    """What it is of may be a file system that never answers."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    closing.enter_context(near)
    closing.enter_context(far)
    done, session = list[str](), Mock()

    def adopt(*_: object) -> int:
        done.append("it is looked at")
        return 7

    session.buffers.adopt = adopt
    connection = LocalConnection(Mock(), Mock(), Mock(), Mock(), session, near, ExitStack())
    share = local_socket_pb2.LocalRequest(share={"length": PAGE}).SerializeToString()
    with memfd(PAGE) as fd:
        socket.send_fds(far, [share], [fd])
        assert connection.serve(lambda _: done.append("another one leads"))
    assert done == ["another one leads", "it is looked at"]
    assert local_socket_pb2.LocalReply.FromString(far.recv(LOCAL_PACKET_BYTES)).buffer_id == 7


def test_regions_outside_their_buffer(client: RawClient) -> None:
    model_id = prepared(client)
    with side_of(client) as side, memfd(PAGE) as fd:
        buffer_id = side.share(fd, 100)
        inside = buffer_id, 0, 12
        for offset, size in ((0, 101), (100, 1), (89, 12), (1 << 63, 12), ((1 << 64) - 1, 12), (0, (1 << 64) - 1)):
            outside = buffer_id, offset, size
            for regions in ((outside,), (inside, outside)):
                assert type(answer(side, in_region(model_id, *regions)).refusal) is InvalidParameter, regions
        error = answer(side, in_region(model_id, (buffer_id + 1, 0, 12))).refusal
        assert error.code == ReturnCode.UNAVAILABLE_DEVICE


def test_memory_that_comes_after_a_frame(client: RawClient) -> None:
    """Is not taken: descriptors are looked for only before."""
    with side_of(client) as side, memfd(PAGE) as fd:
        run(side, prepared(client))
        with pytest.raises(InvalidParameter, match="where no frame has come"):
            side.share(fd, PAGE)
        assert run(side, prepared(client)).tolist() == list(SUM)


def test_an_output_that_is_too_long_for_a_packet(client: RawClient) -> None:
    """Waits for AwaitRun, which brings it in chunks."""
    draft = Draft()
    x = draft.input([-1])
    draft.node(NodeType.ADD_FUSION, [x, draft.constant(np.ones(1, np.float32))], [draft.output([-1])])
    model_id = int(client.prepare(draft.message).prepared.model_id)
    elements = np.arange(600_000, dtype=np.float32)
    with side_of(client) as side, memfd(elements.nbytes) as fd:
        os.pwrite(fd, elements.tobytes(), 0)
        buffer_id = side.share(fd, elements.nbytes)
        told = answer(side, in_region(model_id, (buffer_id, 0, elements.nbytes), elements=elements.size))
        assert [field.name for field, _ in told.outcome.ListFields()] == ["kept"] and not told.rest
        for _ in range(2):  # Until it is told that nobody wants it any more, it is there.
            awaited = prepared_model_pb2.AwaitRunRequest(run_id=told.run_id)
            head, *rest = client.call("PreparedModel.AwaitRun", awaited)
            (fetched,) = answers_of(head.frames)
            assert fetched.run_id == told.run_id
            (output,) = fetched.outcome.outputs
            assert output.place == CHUNKS
            data = b"".join(each.chunk for each in rest)
            np.testing.assert_array_equal(np.frombuffer(data, np.float32), elements + 1)


def test_memory_that_can_not_be_written(client: RawClient) -> None:
    """It serves as an input, not as an output."""
    model_id = prepared(client)
    with side_of(client) as side, memfd(PAGE, seals=0) as fd:
        os.pwrite(fd, ELEMENTS.tobytes(), 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE)
        buffer_id = side.share(fd, PAGE)
        region = buffer_id, 0, 12
        assert answer(side, in_region(model_id, region)).first(3) == list(SUM)
        assert "can only be read" in str(answer(side, in_region(model_id, region, region)).refusal)


def test_memory_is_cut_short_and_punched_while_runs_read_it(client: RawClient) -> None:
    """The file can't shrink; what can be done to it must not end the daemon."""
    model_id = prepared(client)
    with side_of(client) as side, memfd(PAGE) as fd:
        buffer_id = side.share(fd, PAGE)
        for _ in range(100):
            with pytest.raises(OSError, match="not permitted"):
                os.ftruncate(fd, 0)
            os.posix_fallocate(fd, 0, 2 * PAGE)
            assert not answer(side, in_region(model_id, (buffer_id, 0, 12))).outcome.ByteSize()


@pytest.mark.slow
def test_more_buffers_than_allowed() -> None:
    with (
        attacked_daemon("--session-buffers", "3") as daemon,
        RawClient(daemon.address) as client,
        side_of(client) as side,
        memfd(PAGE) as fd,
    ):
        kept = [side.share(fd, PAGE) for _ in range(3)]
        with pytest.raises(NnrtError, match="--session-buffers"):
            side.share(fd, PAGE)
        assert side.ask(local_socket_pb2.LocalRequest(released_buffers=kept[:1])).done
        side.share(fd, PAGE)


@pytest.mark.slow
def test_numbers_that_the_client_chooses() -> None:
    """Sharing again under one, as after a lost reply, changes nothing; the daemon's own are not the client's."""
    with (
        attacked_daemon("--session-buffers", "2") as daemon,
        RawClient(daemon.address) as client,
        side_of(client) as side,
        side_of(client) as other,
        memfd(PAGE) as fd,
    ):
        chosen = FIRST_CLIENT_BUFFER_ID + 7
        for where in (side, other, side):
            assert where.share(fd, PAGE, chosen) == chosen
        assert side.share(fd, PAGE) < FIRST_CLIENT_BUFFER_ID
        for mine in (1, FIRST_CLIENT_BUFFER_ID - 1):
            with pytest.raises(NnrtError, match="buffer_id is"):
                side.share(fd, PAGE, mine)
        with pytest.raises(NnrtError, match="--session-buffers"):
            side.share(fd, PAGE, chosen + 1)
        assert side.ask(local_socket_pb2.LocalRequest(released_buffers=[chosen])).done
        assert side.share(fd, PAGE, (1 << 64) - 1) == (1 << 64) - 1


@pytest.mark.slow
def test_shared_memory_counts() -> None:
    with (
        attacked_daemon("--session-bytes", str(10 << 20)) as daemon,
        RawClient(daemon.address) as client,
        side_of(client) as side,
        memfd(1 << 30) as fd,
    ):
        side.share(fd, 6 << 20)
        with pytest.raises(NnrtError, match="--session-bytes"):
            side.share(fd, 6 << 20)


@pytest.mark.slow
def test_more_connections_than_allowed() -> None:
    with attacked_daemon("--session-streams", "2") as daemon, RawClient(daemon.address) as client:
        sides = [Side(client.welcome, client.welcome.session_id) for _ in range(3)]
        with pytest.raises(NnrtError, match="--session-streams"):
            Side(client.welcome, client.welcome.session_id)
        for side in sides:
            side.close()


def test_connections_that_say_nothing(client: RawClient) -> None:
    """They give their places up after a while, or when there are too many of them at once."""
    silent = [Side(client.welcome) for _ in range(100)]
    assert silent[-1].socket.recv(1) == b""
    for side in silent:
        side.close()


def test_a_client_that_does_not_read_its_replies(client: RawClient) -> None:
    """Its connection stands still; nobody else's does, and the end of the session ends it."""
    model_id = prepared(client)
    stuck = Side(client.welcome, client.welcome.session_id)
    stuck.socket.setblocking(False)
    with suppress(BlockingIOError):
        for _ in range(1, 100_000):
            stuck.send(frame_of(model_id))
    with side_of(client) as side:
        assert run(side, model_id).tolist() == list(SUM)
    stuck.close()


@pytest.mark.slow
def test_a_refusal_that_nobody_reads(client: RawClient, daemon: DaemonProcess) -> None:
    """Nothing waits for there to be room for it: the connection has ended, and counts no more."""
    model_id, before = prepared(client), descriptors_of(daemon)
    with side_of(client) as side:
        room = unread_replies(side, model_id)
    with side_of(client) as side:
        for _ in range(1, room):
            side.send(frame_of(model_id))
            assert is_read(side)
        side.send(b"\xff")
        until(lambda: descriptors_of(daemon) <= before)


@pytest.mark.slow
def test_draining_waits_for_nobody_who_reads_no_replies(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--drain-timeout-s", "1000", "--heartbeat-timeout-s", "1000")
    with RawClient(daemon.address) as client, side_of(client) as side, side_of(client) as other:
        model_id = prepared(client)
        is_served = True
        while is_served:
            side.send(frame_of(model_id))
            for _ in range(10):  # Others are served meanwhile.
                if is_served := is_read(side, 0.0):
                    break
                run(other, model_id)
        daemon.send(signal.SIGTERM)
        assert daemon.wait() == 0
    assert "cut off" not in daemon.log()


def unread_replies(side: Side, model_id: int) -> int:
    """How many replies make the daemon wait for one to be read."""
    for count in range(100_000):
        side.send(frame_of(model_id))
        if not is_read(side):
            return count
    raise AssertionError("the daemon waits for nobody")


def is_read(side: Side, patience_s: float = 1.0) -> bool:
    """Tell if the daemon has taken what was sent."""
    deadline = time.monotonic() + patience_s
    while int.from_bytes(fcntl.ioctl(side.socket, termios.TIOCOUTQ, bytes(4)), sys.byteorder):
        if time.monotonic() > deadline:
            return False
    return True


@pytest.mark.slow
def test_few_descriptors_are_left() -> None:
    """Of those, neither memory nor connections take any: others are served."""
    with attacked_daemon() as daemon, RawClient(daemon.address) as client, memfd(PAGE) as fd, ExitStack() as closing:
        most = 64
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (most, most))
        side = closing.enter_context(side_of(client))
        with pytest.raises(NnrtError, match="few descriptors left"):
            for _ in range(most):
                side.share(fd, PAGE)
        for _ in range(most):
            silent = Side(client.welcome)
            closing.callback(silent.close)
        with suppress(ConnectionError):
            assert silent.socket.recv(1) == b""
        assert client.allocate(PAGE)
        with RawClient(daemon.address) as other:
            assert other.run(prepared(other), ELEMENTS)[0].tolist() == list(SUM)


@pytest.mark.slow
def test_runs_while_the_daemon_drains() -> None:
    """They are refused, and nothing of them is left."""
    with RawClient((daemon := DaemonProcess("--drain-timeout-s", "0.5")).address) as client, side_of(client) as side:
        stream = client.converse("PreparedModel.RunStream")
        waiting = describe_runs(prepared(client), ELEMENTS.shape, (CHUNKS, INLINE))
        stream.send(RunPacket(frames=waiting.frame()))  # Its chunks never come, which keeps the daemon from ending.
        with Observer(daemon.address) as observer:
            observer.wait_for(lambda state: state.held_bytes > 0)
            daemon.send(signal.SIGTERM)
            observer.wait_for(lambda state: state.draining)
        assert answer(side, frame_of(1)).refusal.code == ReturnCode.UNAVAILABLE_DEVICE
        side.close()
        stream.end_requests()
    assert daemon.wait() == 0
    assert "Traceback" not in daemon.log()
    daemon.kill()


def test_buffers_of_gone_sessions_are_unmapped(daemon: DaemonProcess) -> None:
    maps = Path(f"/proc/{daemon.pid}/maps")
    before = maps.read_text().count("memfd:")
    with memfd(PAGE) as fd:
        with RawClient(daemon.address) as client, side_of(client) as side:
            for _ in range(20):
                side.share(fd, PAGE)
            assert maps.read_text().count("memfd:") == before + 20
        until(lambda: maps.read_text().count("memfd:") == before)


def test_a_buffer_of_the_daemon_is_mapped(client: RawClient) -> None:
    """AllocateBuffer gives memory that both have; one that was allocated before the local socket was there has none."""
    (early,) = client.call("NnrtDevice.AllocateBuffer", device_pb2.AllocateBufferRequest(length=100))
    model_id = prepared(client)
    with side_of(client) as side:
        with pytest.raises(NnrtError, match="has no descriptor"):
            side.ask(local_socket_pb2.LocalRequest(map={"buffer_id": early.buffer.region.buffer_id}))
        (made,) = client.call("NnrtDevice.AllocateBuffer", device_pb2.AllocateBufferRequest(length=100))
        buffer_id = made.buffer.region.buffer_id
        side.send(local_socket_pb2.LocalRequest(map={"buffer_id": buffer_id}).SerializeToString())
        data, descriptors, _, _ = socket.recv_fds(side.socket, LOCAL_PACKET_BYTES, 1)
        assert local_socket_pb2.LocalReply.FromString(data).length == 100
        with mmap.mmap(descriptors[0], 100) as mapping:
            os.close(descriptors[0])
            mapping[:12] = ELEMENTS.tobytes()
            frame = in_region(model_id, (buffer_id, 0, 12), (buffer_id, 20, 12))
            assert not answer(side, frame).outcome.ByteSize()
            assert np.frombuffer(mapping[20:32], np.float32).tolist() == list(SUM)
        with pytest.raises(NnrtError, match="no buffer"):
            side.ask(local_socket_pb2.LocalRequest(map={"buffer_id": 12345}))
