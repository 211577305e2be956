"""Who serves an accelerator holds it."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import StartDaemon

from nnrt_device_service.fleet.spec import DeviceSpec
from nnrt_device_service.host import claim
from nnrt_hdi.errors import OperationForbidden

NOBODY = 65534


@pytest.fixture
def device(tmp_path: Path) -> str:
    """The name of an accelerator that no other test knows."""
    return str(tmp_path)


@pytest.fixture
def holder(device: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(claim.socket_name(device))
        yield held


@pytest.mark.slow
def test_daemons_that_nobody_supervises_may_share_one(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """The second one says so; one of another accelerator has nothing to say."""
    faulty = ("--backend", "faulty", "--option")
    first = start_daemon(*faulty, f"chip={tmp_path}/0")
    second = start_daemon(*faulty, f"chip={tmp_path}/0")
    other = start_daemon(*faulty, f"chip={tmp_path}/1")
    assert f"the process with pid {first.pid} serves it already" in second.log()
    assert "serves it already" not in first.log() + other.log()


def test_what_a_process_of_this_user_holds_is_not_given(device: str, holder: socket.socket) -> None:
    holder.listen(1)
    with pytest.raises(OperationForbidden, match=f"the process with pid {os.getpid()} serves it already"):
        claim.claim(device)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to be another user")
def test_another_user_keeps_no_daemon_down(
    device: str, holder: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever listens first under a name that can be guessed; who it is the kernel notes then."""
    os.seteuid(NOBODY)
    try:
        holder.listen(1)
    finally:
        os.seteuid(0)
    claim.claim(device)
    assert f"the process with pid {os.getpid()} of user {NOBODY} holds its name" in caplog.text


def test_nobody_who_listens_keeps_no_daemon_down(
    device: str, holder: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    claim.claim(device)
    assert "a process that can't be asked holds its name" in caplog.text


def test_a_host_that_allows_no_such_socket_keeps_no_daemon_down(
    device: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As AppArmor and seccomp do."""

    def refuse(*_: object) -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refuse)
    claim.claim(device)
    assert "it can't be claimed: Operation not permitted" in caplog.text


def test_backend_options_and_some_variables_choose_an_accelerator() -> None:
    """However the options are given; to the supervisor as to the daemon."""
    flags = ("--backend=onnxruntime", "--provider=cuda", "--device-index=1")
    one = DeviceSpec("a", flags, environment=(("OMP_NUM_THREADS", "4"),))
    same = DeviceSpec("b", ("--backend=onnxruntime", "--option=device_index=1", "--option=provider=cuda"))
    other = DeviceSpec("a", flags, environment=(("CUDA_VISIBLE_DEVICES", "1"),))
    assert one.accelerator == same.accelerator
    assert one.accelerator != other.accelerator
    assert {"onnxruntime", "device_index=1", "provider=cuda", "CUDA_VISIBLE_DEVICES=1"} <= {*other.accelerator}


def test_what_an_older_version_had_started_has_an_accelerator() -> None:
    """Its flags may be none any more."""
    assert DeviceSpec("a", ("--gone=1",)).accelerator
