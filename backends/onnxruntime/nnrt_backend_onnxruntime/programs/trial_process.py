"""The process in which programs are tried: it has ONNX Runtime loaded, and forks for each of them.

It is started with as little as it needs, reads requests from a socket that the daemon has the other end of, and ends
with it. What it forks opens one session, may run it once, and exits. How that went is all that comes back.
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

# What a trial may take: of the processor, and of address space besides what it was given, and so many times that.
MOST_CPU_S = 120
ROOM_BYTES = 1 << 30
ROOM_SHARE = 8
# Exit status where ONNX Runtime refuses the model. It has said why before: the class of its error, and the message.
REFUSED = 3
MOST_SAID = 4096
# What is said of the network once it has been left.
ISOLATED = "isolated"
# Between what is said and the exit status, which is the last.
SEPARATOR = b"\0"
HEADER_BYTES = 8
# What each thread of ONNX Runtime takes of address space, for its stack and the C library's heap.
_THREAD_BYTES = 160 << 20
_CPU_MARGIN_S = 10

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG = 1
_REQUEST_FDS = 2


@dataclass(frozen=True, slots=True)
class Request:
    """The content of the memory that comes with it: its own length, itself, and from there on what it names."""

    device: Any
    config: Any
    entries: Mapping[str, str]
    is_optimized: bool
    model_bytes: int
    # Name, data type, shape and offset of each.
    weights: Sequence[tuple[str, str, tuple[int, ...], int]]
    # The like of a run to try besides, None where there is none; and what a run may take of memory.
    inputs: Sequence[tuple[str, str, tuple[int, ...], int]] | None = None
    run_bytes: int = 0


def serve(fd: int, told: int) -> None:
    """Serve requests until the other end of this socket is closed. What comes of leaving the network is written to
    `told`, which is closed then."""
    with suppress(OSError), open(told, "w") as file:  # Nobody may listen.
        file.write(_leave_network())
    # Only now: a process with threads can't leave.
    from nnrt_backend_onnxruntime.session import release_memory

    release_memory()  # Which opens a session: the first one of a process takes longer than others.
    import_module("nnrt_backend_onnxruntime.model")  # What children need, too.
    for number in (signal.SIGINT, signal.SIGTERM):  # They may go to the whole group; this process ends with the daemon.
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()
    with socket.socket(fileno=fd) as requests:
        _Server(requests).serve()


class _Server:
    """Begins trials, ends those that nobody waits for, and says how the others ended."""

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
                        if not fds:  # The end of the daemon.
                            return
                        self.begin(*fds)
                    elif key.fileobj == self._woken:
                        os.read(self._woken, 4096)
                        self._reap()
                    elif key.data in self.replies:  # Nobody waits for this one any more.
                        os.kill(key.data, signal.SIGKILL)
                        self._selector.unregister(key.fileobj)
        finally:
            for pid in self.replies:
                os.kill(pid, signal.SIGKILL)

    def begin(self, memory: int, reply: int) -> None:
        try:
            pid = os.fork()
        except OSError:  # The host has no process left, or no memory.
            os.close(memory)
            _close(socket.socket(fileno=reply), -signal.SIGKILL)
            return
        if pid == 0:
            for other in (self._requests, *self.replies.values()):
                other.close()
            os._exit(_tried(memory, reply))
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
            _close(reply, os.waitstatus_to_exitcode(status))


def _close(reply: socket.socket, status: int) -> None:
    """Say how a trial ended."""
    with reply, suppress(OSError):  # Nobody may wait for it any more.
        reply.send(SEPARATOR + str(status).encode())
        reply.shutdown(socket.SHUT_RDWR)


def _tried(memory: int, reply: int) -> int:
    """Open the session that is asked for, and run it if it is to be; the exit status."""
    signal.set_wakeup_fd(-1)
    _end_with_parent()
    logging.disable()
    try:
        _try(memory)
    except Exception as error:
        os.write(reply, f"{type(error).__name__} {error}".encode(errors="replace")[:MOST_SAID])
        return REFUSED
    return 0


def _try(memory: int) -> None:
    import numpy as np
    from onnxruntime import GraphOptimizationLevel

    from nnrt_backend_onnxruntime.model import translated
    from nnrt_backend_onnxruntime.session import created_session, session_options
    from nnrt_hdi.errors import OutOfMemory

    size_bytes = os.fstat(memory).st_size
    data = memoryview(mmap.mmap(memory, size_bytes, mmap.MAP_PRIVATE, mmap.PROT_READ))
    begin = HEADER_BYTES + int.from_bytes(data[:HEADER_BYTES], "little")
    request: Request = pickle.loads(data[HEADER_BYTES:begin])  # noqa: S301  # Of the daemon.
    data = data[begin:]
    options = session_options(request.device, request.config, request.entries)
    if request.inputs is None:
        options.intra_op_num_threads = 1
    threads = options.intra_op_num_threads
    room_bytes = ROOM_BYTES + ROOM_SHARE * size_bytes + request.run_bytes + (threads - 1) * _THREAD_BYTES
    _bound(room_bytes, MOST_CPU_S * threads)
    if not request.is_optimized:
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    weights, inputs = (
        {name: np.ndarray(shape, dtype, data, offset) for name, dtype, shape, offset in arrays or ()}
        for arrays in (request.weights, request.inputs)
    )
    model = bytes(data[: request.model_bytes])
    try:
        session = created_session(model, weights, options, request.device, request.config.extensions)
    except Exception as error:
        unoptimized = GraphOptimizationLevel.ORT_DISABLE_ALL
        if isinstance(translated(error), OutOfMemory) or options.graph_optimization_level == unoptimized:
            raise
        options.graph_optimization_level = unoptimized  # As `open_session` does.
        session = created_session(model, {}, options, request.device, request.config.extensions)
    if request.inputs is not None:
        session.run(None, inputs)


def _bound(room_bytes: int, cpu_s: int) -> None:
    """Let this process take no more than a trial may."""
    pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115, PTH123
    most_bytes = pages * resource.getpagesize() + room_bytes
    # At the higher one of the two it would be SIGKILL, as of a host without memory, and not SIGXCPU.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + _CPU_MARGIN_S))
    for limit, most in (
        (resource.RLIMIT_AS, most_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 64),
    ):
        resource.setrlimit(limit, (most, most))


def _leave_network() -> str:
    """Leave the network; ISOLATED, or why the system doesn't let this process."""
    failed = ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    return os.strerror(ctypes.get_errno()) if failed else ISOLATED


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
