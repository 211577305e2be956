"""Fixtures: the keys of an organization with its own certificate authority, and access files."""

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model

from nnrt_client import Compilation, Executor, NnrtError, Runtime, Settings
from nnrt_device_service.access.keys import CA, Authority

HOSTS = ("localhost", "127.0.0.1")
DAYS = 30


class Fleet:
    """The key files that `nnrt-device keys` writes, and the flags and settings that use them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.certificate, self.key = self.authority.issue_server("daemon", HOSTS, DAYS)

    @property
    def ca(self) -> str:
        return str(self.folder / CA)

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of a daemon with TLS."""
        return "--tls-cert", str(self.certificate), "--tls-key", str(self.key)

    @property
    def client_flags(self) -> tuple[str, ...]:
        """Flags of a daemon with TLS that asks clients for certificates, too."""
        return *self.flags, "--tls-client-ca", self.ca

    def settings(self, client: str = "") -> Settings:
        """Return the settings of a client that trusts the authority, with a certificate if `client` names one."""
        if not client:
            return Settings(tls_ca=self.ca)
        certificate, key = self.authority.issue_client(client, DAYS, replaces=True)
        return Settings(tls_ca=self.ca, tls_cert=str(certificate), tls_key=str(key))


MakeFleet = Callable[[str], Fleet]


@pytest.fixture
def make_fleet(tmp_path: Path) -> MakeFleet:
    return lambda name: Fleet(tmp_path / name)


@pytest.fixture
def fleet(make_fleet: MakeFleet) -> Fleet:
    return make_fleet("fleet")


def works(address: str, settings: Settings) -> None:
    """Build and run a model at an address; fail the test if that fails."""
    with Runtime([address], settings) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            assert executor.run_sync([np.array([1, 2], np.float32)])[0].tolist() == [1, 2]


def refusal(address: str, settings: Settings) -> str:
    """Return the message of the error with which the daemon refuses to open a session."""
    with Runtime([address], settings) as runtime, pytest.raises(NnrtError) as refused:
        runtime.device()
    return str(refused.value)


def move(new: Path, place: Path) -> None:
    """Move a file to a path, with a modification time in the past.

    A daemon that compares modification times then knows that nobody writes the file any more, however coarse the file
    system's clock is.
    """
    os.utime(new, (0, 0))
    new.replace(place)


class Access:
    """Access file, and the tokens of the identities that it names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "access"
        self.path.touch()

    def add(self, name: str, role: str, token: str = "") -> Settings:
        """Add an identity to the access file, and return its client's settings."""
        settings = self.settings(name, token)
        digest = sha256((token or f"token-of-{name}").encode()).hexdigest()
        self.write([*self.path.read_text().splitlines(), f"{name} {role} token {digest}"])
        return settings

    def settings(self, name: str, token: str = "") -> Settings:
        file = self.folder / f"{name}.token"
        file.write_text(f"{token or f'token-of-{name}'}\n")
        return Settings(token_file=str(file))

    def write(self, lines: list[str]) -> None:
        """Write a new file, and replace the access file by it in one step."""
        new = self.folder / "new"
        new.write_text("\n".join([*lines, ""]))
        move(new, self.path)


@pytest.fixture
def access(tmp_path: Path) -> Access:
    return Access(tmp_path)


def start(start_daemon: StartDaemon, access: Access, *flags: str, listen: str = "127.0.0.1:0") -> DaemonProcess:
    return start_daemon("--access", str(access.path), *flags, listen=listen)
