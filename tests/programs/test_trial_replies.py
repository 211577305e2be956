"""What the daemon makes of the end of a trial, and what the process of trials says where it can't begin one."""

import errno
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing

import pytest
from nnrt_backend_onnxruntime.programs import trials
from nnrt_backend_onnxruntime.programs.first_runs import FirstRuns
from nnrt_backend_onnxruntime.programs.trials import Trial

from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import NnrtError, OutOfMemory, TimedOut, Unsupported
from nnrt_hdi.forking import END_S, SEPARATOR, Server

SHAPES = ((2, 3),)
BOUND = """
from nnrt_hdi.forking import limit_resources
limit_resources(1 << 30, 1)
while True:
    pass
"""


def require_success(status: int) -> None:
    """As where the process of a run's trial ended with this status."""
    ours, theirs = socket.socketpair()
    with theirs, Trial(ours, "a run") as trial:
        theirs.send(SEPARATOR + str(status).encode())
        theirs.shutdown(socket.SHUT_RDWR)
        trial.require_success(lambda: None)


def require_in_time() -> None:
    ours, theirs = socket.socketpair()
    with theirs, Trial(ours, "a run") as trial:
        trial.deadline = 0.0
        trial.require_success(lambda: None)


@pytest.mark.parametrize(
    ("try_it", "error", "times"),
    [
        (lambda: require_success(-signal.SIGKILL), OutOfMemory, 2),
        (require_in_time, TimedOut, 2),
        (lambda: require_success(-signal.SIGXCPU), Unsupported, 1),
        (lambda: require_success(-signal.SIGABRT), Unsupported, 1),
    ],
    ids=["killed", "late", "processor", "crashed"],
)
def test_only_what_lies_in_the_program_is_remembered(
    try_it: Callable[[], None], error: type[NnrtError], times: int
) -> None:
    """And not what another process on the host, or the system, had a part in."""
    kinds, tried = FirstRuns(is_never_empty=False), []

    def count() -> None:
        tried.append(True)
        try_it()

    for _ in range(2):
        with pytest.raises(error, match=r"ONNX Runtime|try later"):
            kinds.require(SHAPES, count, Cancellation())
    assert len(tried) == times


def test_too_much_of_the_processor_has_a_signal_of_its_own() -> None:
    assert subprocess.run([sys.executable, "-c", BOUND], check=False).returncode == -signal.SIGXCPU


def test_replies_are_read_from_any_descriptor() -> None:
    """Also from one beyond those that select() takes."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] <= 2000:
        pytest.skip("this host lets nobody have so many descriptors")
    ours, theirs = socket.socketpair()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        with ours, theirs:
            theirs.send(SEPARATOR + b"0")
            theirs.shutdown(socket.SHUT_RDWR)
            high = socket.socket(fileno=fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD_CLOEXEC, 1500))
            with Trial(high, "") as trial:
                trial.require_success(lambda: None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_host_without_processes_ends_no_other_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    server = Server.__new__(Server)
    server.replies = {}
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    os.close(write)
    monkeypatch.setattr(os, "fork", fork)
    with Trial(ours, "") as trial:
        server.begin(read, theirs.detach())
        with pytest.raises(OutOfMemory, match="try later"):
            trial.require_success(lambda: None)
    assert not server.replies
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)


def test_a_trial_begins_though_nobody_is_told_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with closing(trials.Trials()) as started:
        started.start()
        assert started.process is not None
        assert started.requests is not None
        started.requests.shutdown(socket.SHUT_WR)
        assert started.process.wait(END_S) == 0
