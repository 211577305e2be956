"""Files that a client sends descriptors of: read as far as nobody has to wait for them, and never mapped."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from daemon_process import DaemonProcess
from local_side import Side, side_of
from model_draft import Draft
from raw_client import RawClient, attacked_daemon, client
from waiting import until

from nnrt_hdi.errors import InvalidFile, InvalidParameter, NnrtError, OutOfMemory, UnavailableDevice
from nnrt_hdi.files.file_part import FEATURE
from nnrt_hdi.limits import FIRST_CLIENT_BUFFER_ID
from nnrt_hdi.v2 import device_pb2, local_socket_pb2, model_pb2

__all__ = ["client"]  # A fixture.

DATA = np.random.default_rng(3).bytes(3 << 20)
NUMBER = FIRST_CLIENT_BUFFER_ID


def share(side: Side, fd: int, buffer_id: int = NUMBER) -> int:
    request = local_socket_pb2.LocalRequest(share={"buffer_id": buffer_id, "is_file": True})
    return int(side.ask(request, (fd,)).buffer_id)


def read(client: RawClient, start: int, size: int, data: bytes = DATA) -> int:
    """Have the daemon read a constant from the file; how many it has completed."""
    region = model_pb2.BufferRegion(buffer_id=NUMBER, offset=start, data_size=size)
    chunk = device_pb2.ConstantChunk(sha256=Draft.digest(data), size_bytes=len(data), region=region)
    return int(client.ask("NnrtDevice.UploadConstants", chunk).completed)


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with attacked_daemon() as daemon:
        yield daemon


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"before" + DATA + b"behind")
    return path


@pytest.fixture
def fd(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_constants_in_a_file(client: RawClient, fd: int) -> None:
    assert FEATURE in client.welcome.features
    with side_of(client) as side:
        assert share(side, fd) == share(side, fd) == NUMBER
        with pytest.raises(InvalidFile, match="another SHA-256"):
            read(client, 5, len(DATA))
        assert read(client, 6, len(DATA)) == 1
        for start, size in ((13, len(DATA)), (1 << 63, len(DATA)), ((1 << 64) - 1, 1)):
            with pytest.raises(InvalidParameter, match="pass the end"):
                read(client, start, size, b"another" * 700_000)
        with pytest.raises(InvalidParameter, match="do not follow"):
            read(client, 0, 7, b"short")


@pytest.mark.parametrize("is_over_grpc", [False, True])
def test_a_file_is_forgotten_when_it_is_released(client: RawClient, fd: int, is_over_grpc: bool) -> None:
    with side_of(client) as side:
        share(side, fd)
        if is_over_grpc:
            client.call("NnrtDevice.ReleaseBuffer", device_pb2.ReleaseBufferRequest(buffer_id=NUMBER))
        else:
            side.ask(local_socket_pb2.LocalRequest(released_buffers=[NUMBER]))
        with pytest.raises(UnavailableDevice, match="no buffer"):
            read(client, 6, len(DATA))


def test_a_file_that_is_cut_short(client: RawClient, fd: int, path: Path) -> None:
    with side_of(client) as side:
        share(side, fd)
        os.truncate(path, 1000)
        with pytest.raises(InvalidParameter, match="pass the end"):
            read(client, 6, len(DATA))
        os.truncate(path, 0)
        with pytest.raises(InvalidParameter, match="pass the end"):
            read(client, 0, 5, b"bytes")


def test_a_file_is_no_memory_of_runs(client: RawClient, fd: int) -> None:
    with side_of(client) as side:
        share(side, fd)
        with pytest.raises(UnavailableDevice, match="no buffer"):
            client.call("NnrtDevice.ReadBuffer", model_pb2.BufferRegion(buffer_id=NUMBER, data_size=1))


def test_a_file_that_would_be_waited_for(client: RawClient) -> None:
    """As one of a file system of the client's own: this one can't be read without waiting, either."""
    fd = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        with side_of(client) as side, pytest.raises(InvalidParameter, match="regular file"):
            share(side, fd)
    finally:
        os.close(fd)


def test_descriptors_that_are_refused(client: RawClient, path: Path) -> None:
    near, far = socket.socketpair()
    reader, writer = os.pipe()
    opened = [
        os.open(path.parent, os.O_RDONLY),
        os.open("/dev/zero", os.O_RDONLY),
        os.open(path, os.O_WRONLY),
        os.open(path, os.O_PATH),
        reader,
        writer,
    ]
    try:
        with side_of(client) as side:
            for fd in (*opened, near.fileno()):
                with pytest.raises(InvalidParameter, match="regular file"):
                    share(side, fd)
            with pytest.raises(InvalidParameter, match="no descriptor"):
                side.ask(local_socket_pb2.LocalRequest(share={"buffer_id": NUMBER, "is_file": True}))
            for number in (0, NUMBER - 1):
                with pytest.raises(InvalidParameter, match="buffer_id is"):
                    side.ask(local_socket_pb2.LocalRequest(share={"buffer_id": number, "is_file": True}), (opened[2],))
    finally:
        for fd in opened:
            os.close(fd)
        near.close()
        far.close()


def test_more_files_than_allowed(client: RawClient, daemon: DaemonProcess, fd: int) -> None:
    """The descriptors of a session end with it."""

    def open_files() -> int:
        return sum(os.path.realpath(link) == os.path.realpath(f"/proc/self/fd/{fd}") for link in links())

    def links() -> list[Path]:
        return list(Path(f"/proc/{daemon.pid}/fd").iterdir())

    with RawClient(daemon.address) as other, side_of(other) as side:
        for number in range(8):
            share(side, fd, NUMBER + number)
        with pytest.raises(OutOfMemory, match="files"):
            share(side, fd, NUMBER + 8)
        until(lambda: open_files() == 8)  # The daemon answers before it closes what it has not taken.
        side.ask(local_socket_pb2.LocalRequest(released_buffers=[NUMBER]))
        assert share(side, fd, NUMBER + 8) == NUMBER + 8
    until(lambda: not open_files())


def test_the_file_of_a_client_that_is_gone(daemon: DaemonProcess, fd: int) -> None:
    with RawClient(daemon.address) as other, side_of(other) as side:
        share(side, fd)
    with RawClient(daemon.address) as other, pytest.raises(NnrtError, match="no buffer"):
        read(other, 6, len(DATA))
