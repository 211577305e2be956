"""os.fork in a process that watches names."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import warm
from daemon_process import DaemonProcess

from resolvers.test_mdns import ANNOUNCED, NAME, why_not

_DEADLINE_S = 60
# It watches, forks before its first connection, and then a device appears.
_SCRIPT = """
import os, sys
from pathlib import Path
from waiting import until
from nnrt_client import Runtime
path, address, *names = sys.argv[1:]
runtime = Runtime(names)
assert "127.0.0.1:1" in runtime.addresses
child = os.fork()
if child:
    Path(path).write_text("127.0.0.1:1\\n" + address)
until(lambda: address in runtime.addresses, lambda: runtime.addresses)
os.write(1, f"{runtime.device(address).name}\\n".encode())
runtime.close()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_both_processes_go_on_watching(start_daemon: Callable[..., DaemonProcess], tmp_path: Path) -> None:
    daemon = start_daemon("--name", "device", *ANNOUNCED)
    path = tmp_path / "devices"
    path.write_text("127.0.0.1:1\n")
    ended = warm.run(
        [sys.executable, "-c", _SCRIPT, path, daemon.address, f"file://{path}?every=0.01", NAME],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "PYTHONWARNINGS": "ignore::DeprecationWarning",  # Python's own, of a fork with threads.
        },
    )
    assert (ended.returncode, ended.stdout.split()) == (0, ["device_nnrt_v2_1"] * 2), ended.stderr
