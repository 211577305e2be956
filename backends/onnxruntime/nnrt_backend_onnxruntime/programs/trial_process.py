"""Process in which programs are tried. It has ONNX Runtime loaded, and forks for each trial.

The daemon starts the process with a minimal environment, and sends requests over a socket. The process ends with the
daemon. A forked child opens one session, may run it once, and exits. The daemon learns only how the child ended.
"""

import ctypes
import gc
import logging
import mmap
import os
import pickle
import resource
import selectors
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

# The limits of a trial: seconds of processor time per thread; bytes of address space, plus this multiple of the bytes
# that the trial gets.
MOST_CPU_S = 120
ROOM_BYTES = 1 << 30
ROOM_SHARE = 8
# The exit status if ONNX Runtime refuses the model. The reply has the class of its error and the message before it.
REFUSED = 3
MAX_MESSAGE_BYTES = 4096
# The message that this process has left the network.
ISOLATED = "isolated"
# Separates the message from the exit status, which comes last.
SEPARATOR = b"\0"
HEADER_BYTES = 8
# The address space of each thread of ONNX Runtime, for its stack and the C library's heap.
_THREAD_BYTES = 160 << 20
_CPU_MARGIN_S = 10

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG = 1
_REQUEST_FDS = 2


@dataclass(frozen=True, slots=True)
class Request:
    """Request of a trial. Shared memory has its length, the pickled request, then the model and the arrays."""

    device: Any
    config: Any
    entries: Mapping[str, str]
    is_optimized: bool
    model_bytes: int
    # Name, data type, shape and offset of each array.
    weights: Sequence[tuple[str, str, tuple[int, ...], int]]
    # The inputs of a run to try too, or None to try only the opening; the memory in bytes that a run may take.
    inputs: Sequence[tuple[str, str, tuple[int, ...], int]] | None = None
    run_bytes: int = 0


def serve(fd: int, report: int) -> None:
    """Serve requests until the other end of the socket is closed.

    Args:
        fd: The socket.
        report: The pipe to which this process writes whether it could leave the network, and which it then closes.
    """
    with suppress(OSError), open(report, "w") as file:  # The reader may be gone.
        file.write(_leave_network())
    # Imported late, because a process with threads can't leave the network.
    from nnrt_backend_onnxruntime.session import release_memory

    release_memory()  # Opens a session, because the first one of a process takes longest.
    import_module("nnrt_backend_onnxruntime.model")  # The children need it too.
    for number in (signal.SIGINT, signal.SIGTERM):  # A terminal sends them to the whole process group.
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()
    with socket.socket(fileno=fd) as requests:
        _Server(requests).serve()


class _Server:
    """Loop that starts trials, ends those that nobody waits for, and reports how the others ended."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self.replies: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        self._selector.register(requests, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def serve(self) -> None:
        try:
            while True:
                for key, _ in self._selector.select():
                    if key.fileobj is self._requests:
                        _, fds, _, _ = socket.recv_fds(self._requests, 1, _REQUEST_FDS)
                        if not fds:  # The daemon has ended.
                            return
                        self.begin(*fds)
                    elif key.fileobj == self._woken:
                        os.read(self._woken, 4096)
                        self._reap()
                    elif key.data in self.replies:  # The daemon no longer waits for this trial.
                        os.kill(key.data, signal.SIGKILL)
                        self._selector.unregister(key.fileobj)
        finally:
            for pid in self.replies:
                os.kill(pid, signal.SIGKILL)

    def begin(self, memory: int, reply: int) -> None:
        try:
            pid = os.fork()
        except OSError:  # The host has no process or no memory left.
            os.close(memory)
            _report_end(socket.socket(fileno=reply), -signal.SIGKILL)
            return
        if pid == 0:
            for other in (self._requests, *self.replies.values()):
                other.close()
            os._exit(_run_trial(memory, reply))
        os.close(memory)
        self.replies[pid] = socket.socket(fileno=reply)
        self._selector.register(self.replies[pid], selectors.EVENT_READ, pid)

    def _reap(self) -> None:
        while self.replies:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            reply = self.replies.pop(pid)
            if reply in self._selector.get_map():
                self._selector.unregister(reply)
            _report_end(reply, os.waitstatus_to_exitcode(status))


def _report_end(reply: socket.socket, status: int) -> None:
    """Report to the daemon how a trial ended, and close the connection."""
    with reply, suppress(OSError):  # The daemon may have closed its end.
        reply.send(SEPARATOR + str(status).encode())
        reply.shutdown(socket.SHUT_RDWR)


def _run_trial(memory: int, reply: int) -> int:
    """Open the requested session, run it if requested, and return the exit status."""
    signal.set_wakeup_fd(-1)
    _end_with_parent()
    logging.disable()
    try:
        _open_and_run(memory)
    except Exception as error:
        os.write(reply, f"{type(error).__name__} {error}".encode(errors="replace")[:MAX_MESSAGE_BYTES])
        return REFUSED
    return 0


def _open_and_run(memory: int) -> None:
    import numpy as np
    from onnxruntime import GraphOptimizationLevel

    from nnrt_backend_onnxruntime.model import translated_error
    from nnrt_backend_onnxruntime.session import create_session, session_options
    from nnrt_hdi.errors import OutOfMemory

    size_bytes = os.fstat(memory).st_size
    data = memoryview(mmap.mmap(memory, size_bytes, mmap.MAP_PRIVATE, mmap.PROT_READ))
    begin = HEADER_BYTES + int.from_bytes(data[:HEADER_BYTES], "little")
    request: Request = pickle.loads(data[HEADER_BYTES:begin])  # noqa: S301  # The daemon wrote it.
    data = data[begin:]
    options = session_options(request.device, request.config, request.entries)
    if request.inputs is None:
        options.intra_op_num_threads = 1
    threads = options.intra_op_num_threads
    room_bytes = ROOM_BYTES + ROOM_SHARE * size_bytes + request.run_bytes + (threads - 1) * _THREAD_BYTES
    _limit_resources(room_bytes, MOST_CPU_S * threads)
    if not request.is_optimized:
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    weights, inputs = (
        {name: np.ndarray(shape, dtype, data, offset) for name, dtype, shape, offset in arrays or ()}
        for arrays in (request.weights, request.inputs)
    )
    model = bytes(data[: request.model_bytes])
    try:
        session = create_session(model, weights, options, request.device, request.config.extensions)
    except Exception as error:
        unoptimized = GraphOptimizationLevel.ORT_DISABLE_ALL
        if isinstance(translated_error(error), OutOfMemory) or options.graph_optimization_level == unoptimized:
            raise
        options.graph_optimization_level = unoptimized  # As `open_session` does.
        session = create_session(model, {}, options, request.device, request.config.extensions)
    if request.inputs is not None:
        session.run(None, inputs)


def _limit_resources(room_bytes: int, cpu_s: int) -> None:
    """Limit the processor time, memory and files of this process."""
    pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115, PTH123
    most_bytes = pages * resource.getpagesize() + room_bytes
    # Above the soft limit the signal is SIGXCPU. The hard limit sends SIGKILL, as a host without memory does.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + _CPU_MARGIN_S))
    for limit, most in (
        (resource.RLIMIT_AS, most_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 64),
    ):
        resource.setrlimit(limit, (most, most))


def _leave_network() -> str:
    """Move this process to a network namespace without network. Return ISOLATED, or why the system refuses that."""
    failed = ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    return os.strerror(ctypes.get_errno()) if failed else ISOLATED


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
