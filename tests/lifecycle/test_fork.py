"""os.fork: a child of a process with connections gets clear errors, and nothing in it hangs."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm
from conftest import StartDaemon
from observer import Observer

DEADLINE_S = 60.0
FORKED = Path(__file__).parent / "forked.py"


def run_script(script: Path | str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(script)] if isinstance(script, Path) else [sys.executable, "-c", script]
    return warm.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(Path(__file__).parents[up]) for up in (1, 2)),
            "PYTHONWARNINGS": "ignore::DeprecationWarning",  # Python's own, of a fork with threads.
        },
    )


def test_child_of_a_process_with_connections(start_daemon: StartDaemon) -> None:
    """While runs wait and calls are made. The parent goes on, and ends with runs pending: at once, with no callback."""
    daemon = start_daemon("--backend", "slow", "--lease-s", "60")
    ended = run_script(FORKED, daemon.address)
    assert (ended.returncode, ended.stdout) == (0, "ok\n"), ended.stderr
    # It said goodbye, so the daemon need not wait for the lease.
    with Observer(daemon.address) as observer:
        observer.wait_until_empty()


BEFORE_THE_FIRST_CONNECTION = """
import os, sys
from nnrt_client import Runtime
idle = Runtime(sys.argv[1:])
child = os.fork()
with Runtime(sys.argv[1:]) as runtime:
    os.write(1, f"{runtime.device().name} {idle.device().name}\\n".encode())  # At once: both write to one pipe.
idle.close()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_fork_before_the_first_connection(start_daemon: StartDaemon) -> None:
    """Both processes have connections of their own then."""
    daemon = start_daemon()
    ended = run_script(BEFORE_THE_FIRST_CONNECTION, daemon.address)
    assert (ended.returncode, ended.stdout.split()) == (0, ["reference_nnrt_v2_1"] * 4), ended.stderr


IN_AN_IDLE_CHILD = """
import os, sys
from nnrt_client import Runtime
with Runtime(sys.argv[1:]) as runtime:
    runtime.device().status()
    child = os.fork()
    if not child:
        os.write(1, f"{len(os.listdir('/proc/self/task'))}\\n".encode())
        os._exit(0)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_grpc_starts_no_threads_in_a_child(start_daemon: StartDaemon) -> None:
    """It crashed there now and then. It starts them, unless told otherwise, where no call is under way at the fork."""
    ended = run_script(IN_AN_IDLE_CHILD, start_daemon().address)
    assert (ended.returncode, ended.stdout) == (0, "1\n"), ended.stderr


SPAWNED = """
import multiprocessing as mp, sys
from nnrt_client import Runtime
def names(address):
    with Runtime([address]) as runtime:
        return [device.name for device in runtime.devices()]
if __name__ == "__main__":
    with Runtime(sys.argv[1:]) as runtime:
        runtime.device()
        with mp.get_context("spawn").Pool(1) as pool:
            print(*pool.map(names, sys.argv[1:])[0])
"""


def test_spawned_process(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """A child does what the error advises."""
    daemon = start_daemon()
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED)
    ended = run_script(script, daemon.address)
    assert (ended.returncode, ended.stdout) == (0, "reference_nnrt_v2_1\n"), ended.stderr


STOPPED = """
import os, signal, sys
import numpy as np
from networks import identity_model
from nnrt_client import Compilation, Executor, Runtime
runtime = Runtime(sys.argv[1:2])
compilation = Compilation(identity_model(), runtime.device())
compilation.build()
executor = Executor(compilation)
executor.set_on_run_done(lambda *outcome: print("called back", flush=True))
executor.run_async([np.ones(1, np.float32)], timeout_ms=600_000, user_data=1)
os.kill(int(sys.argv[2]), signal.SIGSTOP)
"""


def test_interpreter_ends_beside_a_stopped_daemon(start_daemon: StartDaemon) -> None:
    """With a run pending and a daemon that answers no goodbye."""
    daemon = start_daemon("--backend", "slow")
    began = time.monotonic()
    ended = run_script(STOPPED, daemon.address, str(daemon.pid))
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert time.monotonic() - began < DEADLINE_S / 2
