"""Trials: a process of its own opens the session of a program before the daemon does, for ONNX Runtime may crash on it.

What tells is that the process lives on: the session is opened once more here. Nothing that a file may have got hold of
there comes back but how the process ended.
"""

import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import accumulate

import onnxruntime
from nnrt_onnx_lowering.builder import AnyArray

from nnrt_backend_onnxruntime.programs.trial_process import (
    HEADER_BYTES,
    MOST_CPU_S,
    MOST_SAID,
    REFUSED,
    SEPARATOR,
    Request,
)
from nnrt_backend_onnxruntime.providers import ProviderDevice
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import OperationFailed, Unsupported
from nnrt_hdi.tensor import flat_bytes

CAN_TRY = sys.platform == "linux"
# Beyond its share of the processor a trial may wait for that, too.
MOST_S = 4 * MOST_CPU_S
_POLL_S = 0.25
_ALIGNMENT = 64
_END_S = 30.0
_START = (
    "import sys; sys.path[:] = sys.argv[2:];"
    " from nnrt_backend_onnxruntime.programs.trial_process import serve; serve(int(sys.argv[1]))"
)
_KEPT = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "TMPDIR")
# What forks has no other threads: numpy's, and those by which ONNX Runtime tells its makers how it is used.
_SINGLE = {"OPENBLAS_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}


class Crashed(Unsupported, code=Unsupported.code, status=Unsupported.grpc_status):
    """ONNX Runtime has crashed while it opened a session."""


class Refused(OperationFailed, code=OperationFailed.code, status=OperationFailed.grpc_status):
    """ONNX Runtime does not take a model. `kind` is the name of its class of errors."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"ONNX Runtime does not take the model: {message}")
        self.kind = kind


class Trials:
    """The process in which programs are tried; it forks for each. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """The number of the process, None where it isn't running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Have the process ready. Returns before it is."""
        with self._lock:
            self._started()

    def begin(
        self,
        model: bytes,
        weights: Mapping[str, AnyArray],
        device: ProviderDevice,
        config: ModelConfig,
        entries: Mapping[str, str],
        *,
        is_optimized: bool,
    ) -> "Trial":
        """Begin to try a model with these weights, device, configuration and entries of it."""
        arrays = {name: flat_bytes(array) for name, array in weights.items()}
        *offsets, size_bytes = accumulate(
            map(_aligned, (len(model), *(data.nbytes for data in arrays.values()))), initial=0
        )
        places = [
            (name, weights[name].dtype.str, weights[name].shape, offset)
            for name, offset in zip(arrays, offsets[1:], strict=True)
        ]
        header = pickle.dumps(Request(device, config, entries, is_optimized, len(model), places))
        start = _aligned(HEADER_BYTES + len(header))
        header = header.ljust(start - HEADER_BYTES, b"\0")
        memory = os.memfd_create("nnrt-trial", os.MFD_CLOEXEC)
        try:
            os.truncate(memory, start + size_bytes)
            os.pwritev(memory, [len(header).to_bytes(HEADER_BYTES, "little"), header, model], 0)
            for data, offset in zip(arrays.values(), offsets[1:], strict=True):
                _write(memory, data, start + offset)
            return Trial(self._request(memory))
        finally:
            os.close(memory)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            if self._requests is not None:
                self._requests.close()
            if self._process is not None:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_END_S)
                self._process.kill()
                self._process.wait()
            self._process = self._requests = None

    def _request(self, memory: int) -> socket.socket:
        """Ask for a trial; the socket on which the answer comes."""
        ours, theirs = socket.socketpair()
        with theirs:
            for is_last in (False, True):
                with self._lock:
                    requests = self._started()
                    try:
                        socket.send_fds(requests, [b"?"], [memory, theirs.fileno()])
                    except OSError:  # Somebody has ended the process.
                        requests.close()
                        self._requests = None
                        if is_last:
                            ours.close()
                            raise
                    else:
                        break
        return ours

    def _started(self) -> socket.socket:
        if self._requests is not None:
            if self.pid is not None:
                return self._requests
            self._requests.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-c", _START, str(theirs.fileno()), *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={name: os.environ[name] for name in _KEPT if name in os.environ} | _SINGLE,
            )
        self._requests = ours
        return ours


class Trial(Closable):
    """A trial under way. Closed, it ends."""

    def __init__(self, reply: socket.socket) -> None:
        """Made by Trials."""
        self._reply = reply
        self._deadline = time.monotonic() + MOST_S

    def require_success(self, waiting: Callable[[], None]) -> None:
        """Wait for its end, and call `waiting` meanwhile.

        Raises Crashed or Refused, and Unsupported for what takes too much time.
        """
        said, separator, status = self._answer(waiting).rpartition(SEPARATOR)
        if not separator:
            raise OperationFailed(
                "the process that tries files has ended, and the daemon's log may say why; load the file again"
            )
        _require_success(int(status), said.decode(errors="replace"))

    def _answer(self, waiting: Callable[[], None]) -> bytes:
        answer = b""
        while time.monotonic() < self._deadline and len(answer) <= 2 * MOST_SAID:
            if not select.select([self._reply], [], [], _POLL_S)[0]:
                waiting()
            elif piece := self._reply.recv(MOST_SAID):
                answer += piece
            else:
                return answer
        raise Unsupported(f"ONNX Runtime has not opened it after {MOST_S} s")

    def close(self) -> None:
        """End it. Idempotent."""
        self._reply.close()


def _require_success(status: int, said: str) -> None:
    if status == REFUSED:
        kind, _, message = said.partition(" ")
        raise Refused(kind, message)
    if -status in (signal.SIGXCPU, signal.SIGKILL):
        raise Unsupported(
            f"opening it takes ONNX Runtime more than {MOST_CPU_S} s of the processor, or more memory than there is"
        )
    if status:
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        raise Crashed(
            f"ONNX Runtime {onnxruntime.__version__} crashes on it ({name}); export it in another way, or have the"
            " daemon use another version of ONNX Runtime"
        )


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGNMENT) * _ALIGNMENT


def _write(fd: int, data: memoryview, offset: int) -> None:
    """Write all of it; one call writes 2 GiB at most."""
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written
