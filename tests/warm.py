"""Python processes that start fast: forked from a process that has imported what most of them need.

`warm.Popen` and `warm.run` replace those of `subprocess`. A command that runs a module, a script or a program in this
interpreter (`-m`, a path, `-c`) isn't executed: a warm process forks, and the child runs it as its main program. The
child belongs to the tests' process, like any other. There is a warm process for each setting below, started when it is
first needed. A warm process has no threads and has not used gRPC, so a fork is equivalent to a fresh start.

A fork can't change what is read while Python starts and libraries are loaded: a command with such environment variables
or with a `sitecustomize` is executed normally.
"""

import atexit
import ctypes
import inspect
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, AnyStr

_DAEMON = ("nnrt_device_service.cli.serve", "nnrt_backend_reference")
# Modules that the warm process of each setting imports.
_SETTINGS = {
    "client": ("nnrt_client.cli",),
    "daemon": _DAEMON,
    "onnxruntime": (*_DAEMON, "nnrt_backend_onnxruntime.backend"),
}
_READ_BY_LIBRARIES = ("GRPC_", "LANG", "LC_", "LD_", "MALLOC_", "OMP_", "PYTHON")
_READ_LATER = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONWARNINGS")
_LIMITS = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
_PROCESS = Path(__file__).with_name("warm_process.py")
_MAX_ANSWER_BYTES = 64
_PR_SET_CHILD_SUBREAPER = 36
_EXECUTE_CHILD = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]

_processes: dict[str, "_WarmProcess"] = {}
_turn = threading.Lock()


class Popen(subprocess.Popen[AnyStr]):
    """`subprocess.Popen` whose child is forked from a warm process if possible."""

    def _execute_child(self, *arguments: Any) -> None:
        given = _EXECUTE_CHILD.bind(self, *arguments).arguments
        command = [os.fspath(argument) for argument in given["args"]]
        environment = dict(os.environ if given["env"] is None else given["env"])
        if not _can_be_warm(command, environment):
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        request = {
            "arguments": command[1:],
            "environment": environment,
            "directory": os.fspath(given["cwd"] or Path.cwd()),
            "limits": {name: resource.getrlimit(getattr(resource, name)) for name in _LIMITS},
            "has_own_session": given["start_new_session"],
        }
        streams = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        try:
            self.pid = _fork(command, request, [own if own != -1 else number for number, own in enumerate(streams)])
            self._child_created = True
        finally:
            pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(given[pipe] for pipe in pipes))  # type: ignore[attr-defined]


def run(
    command: Sequence[Any],
    *,
    timeout: float | None = None,
    check: bool = False,
    capture_output: bool = False,
    **options: Any,
) -> "subprocess.CompletedProcess[str]":
    """Run a command until it ends, like `subprocess.run` in text mode."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process: Popen[str]
    with Popen(command, **{**options, "text": True}) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    ended = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    if check:
        ended.check_returncode()
    return ended


def pids() -> set[int]:
    """Return the process ids of the warm processes, which live as long as this process."""
    return {process.pid for process in _processes.values()}


def _can_be_warm(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    is_program = command[0] == sys.executable and (command[1] in ("-m", "-c") or not command[1].startswith("-"))
    is_alike = _read_by_libraries(environment) == _read_by_libraries(_environment())
    places = environment.get("PYTHONPATH", "").split(os.pathsep)
    is_changed = any(Path(place, "sitecustomize.py").exists() for place in places if place)
    return sys.platform == "linux" and is_program and is_alike and not is_changed


def _read_by_libraries(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_BY_LIBRARIES) and name not in _READ_LATER
    }


@cache
def _environment() -> Mapping[str, str]:
    """Return the environment of the warm processes.

    It is this process' environment when the first of them starts, without ONNX Runtime's telemetry. NumPy multiplies
    matrices in one thread: on a busy machine its threads delay each other, and runs take now long, now short.
    """
    return {**os.environ, "PYTHONPATH": "", "ORT_DISABLE_TELEMETRY": "1", "OPENBLAS_NUM_THREADS": "1"}


def _fork(command: Sequence[str], request: Mapping[str, Any], standard: Sequence[int]) -> int:
    setting = "client"
    if command[1:3] == ["-m", "nnrt_device_service"]:
        setting = "onnxruntime" if "onnxruntime" in command else "daemon"
    with _turn:
        if setting not in _processes:
            _processes[setting] = _WarmProcess(_SETTINGS[setting])
        return _processes[setting].fork(request, standard)


class _WarmProcess:
    """Process that has imported some modules, and ends with this process."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._socket, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with end:
            command = [sys.executable, str(_PROCESS), str(end.fileno()), *modules]
            self._process = subprocess.Popen(command, env=_environment(), pass_fds=[end.fileno()])
        self.pid = self._process.pid
        atexit.register(self._end)

    def fork(self, request: Mapping[str, Any], standard: Sequence[int]) -> int:
        """Start a child of this process with these standard streams, and return its process id.

        The warm process forks twice, and the process between ends. This process, as the child subreaper, adopts the
        orphan.
        """
        _take_orphans(True)
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], standard)
            answer = self._socket.recv(_MAX_ANSWER_BYTES)
        finally:
            _take_orphans(False)
        return int(answer)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


def _take_orphans(takes: bool) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(takes), 0, 0, 0)
