"""Connections that nobody speaks on."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from waiting import until

from nnrt_client import Compilation, DataType, Executor, NnrtError, Runtime, Tensor, TensorDesc

ONE = np.ones(1, np.float32)
# More than the soft limit below.
SILENT = 316
LIMIT = 256


@contextmanager
def descriptor_limit(soft: int) -> Iterator[None]:
    """The limit that a process started in the block has."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def limited(daemon: DaemonProcess) -> tuple[int, int]:
    return resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)


def silent_connections(daemon: DaemonProcess, closing: ExitStack) -> list[socket.socket]:
    host, _, port = daemon.address.rpartition(":")
    return [closing.enter_context(socket.create_connection((host, int(port)))) for _ in range(SILENT)]


def runs_once(address: str) -> bool:
    with Runtime([address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            return bool(executor.run_sync([ONE])[0] == ONE)


def is_served(daemon: DaemonProcess) -> bool:
    try:
        return runs_once(daemon.address)
    except NnrtError:
        return False


def test_the_soft_limit_is_raised(start_daemon: StartDaemon, closing: ExitStack) -> None:
    """So that a shell's usual limit is not the daemon's, and new clients have room beside those that say nothing."""
    with descriptor_limit(LIMIT):
        daemon = start_daemon()
    assert limited(daemon)[0] == limited(daemon)[1] > LIMIT
    silent_connections(daemon, closing)
    assert runs_once(daemon.address)


@pytest.mark.slow
def test_silent_connections_are_closed(closing: ExitStack) -> None:
    """Where descriptors are few, new clients have room within seconds, and sessions keep a reserve."""
    daemon = DaemonProcess(through=("sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh"))
    closing.callback(daemon.kill)
    with Runtime([daemon.address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            connections = silent_connections(daemon, closing)
            assert daemon.descriptor_count() < LIMIT
            with Tensor(runtime.device(), TensorDesc(DataType.FLOAT32, [1])) as tensor:
                executor.run_sync([tensor])
            until(lambda: is_served(daemon))
            for connection in connections:
                connection.settimeout(30)
                while connection.recv(4096):  # What HTTP/2 begins with; then the end.
                    pass
            assert executor.run_sync([ONE])[0] == ONE
