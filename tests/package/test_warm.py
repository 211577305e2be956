"""A process that is forked from a warm one finds the same environment as an executed one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import warm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every process is executed"),
]

PROGRAM = """
import json, os, resource, signal, sys
print(json.dumps({
    "arguments": sys.argv,
    "descriptors": len(os.listdir("/proc/self/fd")),
    "directory": os.getcwd(),
    "environment": dict(os.environ),
    "input": sys.stdin.read(),
    "limits": [resource.getrlimit(limit) for limit in range(10)],
    "main": [__name__, __package__, sys.modules["__main__"].__dict__ is globals()],
    "parent": os.getppid(),
    "path": sys.path,
    "session": os.getsid(0) == os.getpid(),
    "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
}))
print("to the other stream", file=sys.stderr)
sys.exit(7)
"""


@pytest.mark.parametrize("has_own_session", [False, True])
@pytest.mark.parametrize("kind", ["-c", "-m", "script"])
def test_a_forked_process_is_like_an_executed_one(tmp_path: Path, kind: str, has_own_session: bool) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    what = {"-c": ["-c", PROGRAM], "-m": ["-m", "program"], "script": [str(tmp_path / "program.py")]}[kind]
    found: list[dict[str, Any]] = []
    for popen in (subprocess.Popen, warm.Popen):
        with popen(
            [sys.executable, *what, "one", "two"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": "/nowhere:/elsewhere", "OTHER": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=has_own_session,
            text=True,
        ) as process:
            output, errors = process.communicate("given", timeout=60)
        assert (process.returncode, errors) == (7, "to the other stream\n")
        found.append(json.loads(output))
    executed, forked = found
    assert forked == executed
    assert forked["parent"] == os.getpid()


def test_an_end_by_a_signal() -> None:
    program = "import signal; print(flush=True); signal.pause()"
    with warm.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.kill()
    assert process.returncode == -9


def test_a_variable_that_libraries_read_when_they_are_loaded() -> None:
    program = "import sys; print('nnrt_client' in sys.modules)"
    for variables, is_forked in (({}, True), ({"GRPC_TRACE": "none"}, False)):
        done = warm.run([sys.executable, "-c", program], env={**os.environ, **variables}, capture_output=True)
        assert done.stdout == f"{is_forked}\n"
