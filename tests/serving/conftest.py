"""Fixtures of servers of models."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemon_process import DaemonProcess

from serving.served import MODELS, ServerProcess, add_model

StartServer = Callable[..., ServerProcess]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a version of each of MODELS, which tests don't change."""
    folder = tmp_path_factory.mktemp("models")
    for name in MODELS:
        add_model(folder, name)
    return folder


@pytest.fixture
def start_server(shared_daemon: DaemonProcess) -> Iterator[StartServer]:
    """Yield a function that starts servers of a folder, on the shared daemon or another device.

    Those that still run after the test are killed.
    """
    servers: list[ServerProcess] = []

    def start(models: Path, *arguments: str, device: str = shared_daemon.address) -> ServerProcess:
        servers.append(ServerProcess(models, device, *arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.fixture(scope="session")
def shared_server(models: Path, shared_daemon: DaemonProcess) -> Iterator[ServerProcess]:
    """Server of `models` that offers shared memory, for all tests that don't change it."""
    server = ServerProcess(models, shared_daemon.address, "--shared-memory")
    yield server
    server.kill()
