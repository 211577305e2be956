"""Conformance of a daemon with this backend: it keeps the contract, and its answers are right."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def address() -> Iterator[str]:
    """Yield the address of a daemon that serves the backend."""
    command = [sys.executable, "-m", "nnrt_device_service", "serve", "--backend", "acme", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        words = daemon.stdout.readline().split()  # "listening on ADDRESS", or nothing if the daemon has ended.
        assert words[:2] == ["listening", "on"], "the daemon did not start; it says why above"
        yield words[2]
        daemon.terminate()


def test_the_conformance_kit_finds_no_fault(address: str, tmp_path: Path) -> None:
    """Run two levels of the kit in its quick form. pytest shows the kit's output if it fails."""
    faults = tmp_path / "faults"
    flags = ["--quick", "--level", "contract", "--level", "operators", "--keep", str(faults)]
    done = subprocess.run([sys.executable, "-m", "nnrt_client", "conformance", address, *flags])
    assert done.returncode == 0, f"what is wrong stands above; {faults} has the models, and how to run each again"
