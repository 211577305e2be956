"""The example program, and the example in the documentation of the functions."""

import os
import re
import sys
from pathlib import Path

import pytest
import warm
from daemon_process import DaemonProcess

from nnrt_client import connect, disconnect

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_example_program(shared_daemon: DaemonProcess) -> None:
    """It finds the devices in its environment, like a C program."""
    ran = warm.run(
        [sys.executable, ROOT / "examples/oh_nn_add.py"],
        env={**os.environ, "NNRT_DEVICES": shared_daemon.address},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[11.  0. 33.  0.]\n", "")


@pytest.mark.slow
def test_example_program_without_a_device() -> None:
    ran = warm.run(
        [sys.executable, ROOT / "examples/oh_nn_add.py"],
        env={**os.environ, "NNRT_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "NNRT_DEVICES" in ran.stderr


def test_example_of_the_page(shared_daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/reference/c-functions.md").read_text(), re.DOTALL)
    connect(shared_daemon.address)
    exec(compile(example, "docs/reference/c-functions.md", "exec"), {})
    disconnect()
    assert capsys.readouterr().out == "SUCCESS 24\n"
