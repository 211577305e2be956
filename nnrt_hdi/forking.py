"""Processes for code that may crash: a server, which the daemon starts, forks one for each request.

The server has a minimal environment, and has loaded what the forked processes need. Requests come over a socket, as
descriptors. The server ends with the daemon, and the forked processes with the server. Foreign code may control a
forked process, so the server tells the daemon only how it ended.
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
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

_log = logging.getLogger(__name__)

CAN_FORK = sys.platform == "linux"
# Separates what the forked process wrote from the exit status, which comes last.
SEPARATOR = b"\0"
# Seconds that the server gets to end.
END_S = 30.0
# The message that the server has left the network.
_ISOLATED = "isolated"
_MOST_DESCRIPTORS = 8
_HEADER_BYTES = 8
_ALIGNMENT = 64
_CPU_MARGIN_S = 10
_START = "import sys; sys.path[:] = sys.argv[4:]; from nnrt_hdi.forking import serve; serve(*sys.argv[1:4])"
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "TMPDIR")
# A process that forks must have no other threads: not numpy's, and not those of ONNX Runtime's telemetry.
_SET_VARIABLES = {"OPENBLAS_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG = 1

# What a forked process does with its descriptors, the last of which is its end of the socket of the request. It returns
# the exit status.
Work = Callable[[Sequence[int]], int]


class ForkServer:
    """Server of forked processes, as the daemon has it. All methods are thread-safe."""

    def __init__(self, entry: str, argument: str, about: str) -> None:
        """Make a server that isn't started yet.

        Args:
            entry: "module:function". The server calls it with `argument`, to load what is needed; it returns the Work.
            argument: Any text.
            about: What is done there, for the log: "ONNX files are tried".
        """
        self._entry = entry
        self._argument = argument
        self._about = about
        self._lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.requests: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """The process id, or None if the process isn't running."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    def resident_bytes(self) -> list[int]:
        """Return the bytes of memory that each forked process has, with those that it shares with others."""
        found = []
        with suppress(OSError):  # The server isn't running.
            for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
                with suppress(OSError):  # It has just ended.
                    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                    found.append(pages * resource.getpagesize())
        return found

    def start(self) -> None:
        """Start the process. Returns before it is ready."""
        with self._lock:
            self._start_process()

    def request(self, descriptors: Sequence[int]) -> socket.socket:
        """Ask the server to fork a process with these descriptors, which stay the caller's.

        Returns:
            A socket. It gets what the process writes, SEPARATOR and the exit status. Closing it ends the process.

        Raises:
            OSError: The host has nothing left for it.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            for is_last in (False, True):
                with self._lock:
                    requests = self._start_process()
                try:
                    socket.send_fds(requests, [b"?"], [*descriptors, theirs.fileno()])
                    break
                except OSError as error:
                    is_over = isinstance(error, ConnectionError) or requests.fileno() < 0
                    if is_over:  # The process has been killed, as another thread may have found.
                        self._forget(requests)
                    if is_last or not is_over:
                        ours.close()
                        raise
        return ours

    def _forget(self, requests: socket.socket) -> None:
        """Close the socket of a process that has ended."""
        with self._lock:
            if self.requests is requests:
                self.requests = None
        requests.close()

    def close(self) -> None:
        """End the process, and those that it forked."""
        with self._lock:
            process, requests = self.process, self.requests
            self.process = self.requests = None
        if requests is not None:
            requests.close()
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.kill()
            process.wait()

    def _start_process(self) -> socket.socket:
        if self.requests is not None:
            if self.pid is not None:
                return self.requests
            self.requests.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reader, writer = map(os.fdopen, os.pipe(), ("rb", "wb"))
        with theirs, writer:
            ends = theirs.fileno(), writer.fileno()
            self.process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-c", _START, self._entry, self._argument, ",".join(map(str, ends)), *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=ends,
                env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ} | _SET_VARIABLES,
            )
        self.requests = ours
        try:
            threading.Thread(
                target=_log_isolation, args=(reader, self._about), name="nnrt-isolation", daemon=True
            ).start()
        except RuntimeError:  # No thread is left. Nothing is logged.
            reader.close()
        return ours


def _log_isolation(report: BinaryIO, about: str) -> None:
    """Log whether the server has left the network, as soon as it reports that."""
    with report:
        result = report.read().decode()
    if result == _ISOLATED:
        _log.info("%s in a process without network", about)
    elif result:
        _log.warning("%s in a process that can't leave the network: %s", about, result)


# ---- in the server


def serve(entry: str, argument: str, ends: str) -> None:
    """Serve requests until the other end of the socket is closed.

    Args:
        entry: As for ForkServer.
        argument: As for ForkServer.
        ends: The descriptors of the socket, and of the pipe to which this process writes whether it could leave the
            network.
    """
    requests, report = map(int, ends.split(","))
    with suppress(OSError), os.fdopen(report, "w") as file:  # The reader may be gone.
        file.write(_leave_network())
    # Imported late, because a process with threads can't leave the network.
    module, function = entry.split(":")
    work: Work = getattr(import_module(module), function)(argument)
    for number in (signal.SIGINT, signal.SIGTERM):  # A terminal sends them to the whole process group.
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()
    with socket.socket(fileno=requests) as receiving:
        Server(receiving, work).serve()


class Server:
    """Loop that forks processes, ends those that nobody waits for, and reports how the others ended."""

    def __init__(self, requests: socket.socket, work: Work) -> None:
        self._requests = requests
        self._work = work
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
                        request, fds, flags, _ = socket.recv_fds(self._requests, 1, _MOST_DESCRIPTORS)
                        if not request:  # The daemon has ended.
                            return
                        if flags & socket.MSG_CTRUNC:  # This process may have no more. The daemon hears of it.
                            for fd in fds:
                                os.close(fd)
                        else:
                            self.begin(*fds)
                    elif key.fileobj == self._woken:
                        os.read(self._woken, 4096)
                        self._reap()
                    elif key.data in self.replies:  # The daemon no longer waits for this process.
                        os.kill(key.data, signal.SIGKILL)
                        self._selector.unregister(key.fileobj)
        finally:
            for pid in self.replies:
                os.kill(pid, signal.SIGKILL)

    def begin(self, *descriptors: int) -> None:
        """Fork a process that works with these descriptors. The last one is the socket for its end."""
        *given, reply = descriptors
        try:
            pid = os.fork()
        except OSError:  # The host has no process or no memory left.
            pid = -1
        if pid == 0:
            status = 1
            try:
                wakes = signal.set_wakeup_fd(-1)
                for other in (self._requests, *self.replies.values()):
                    other.close()
                self._selector.close()
                for descriptor in (self._woken, wakes):  # With them it could keep the server from hearing of ends.
                    os.close(descriptor)
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                status = self._work(descriptors)
            finally:
                os._exit(status)
        for descriptor in given:
            os.close(descriptor)
        if pid < 0:
            _report_end(socket.socket(fileno=reply), -signal.SIGKILL)
            return
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
    """Report to the daemon how a process ended, and close the connection."""
    with reply, suppress(OSError):  # The daemon may have closed its end.
        reply.send(SEPARATOR + str(status).encode())
        reply.shutdown(socket.SHUT_RDWR)


def _leave_network() -> str:
    """Move this process to a network namespace without network. Return _ISOLATED, or why the system refuses that."""
    failed = ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    return os.strerror(ctypes.get_errno()) if failed else _ISOLATED


def packed_request(request: object) -> bytes:
    """Return a request of the daemon as the beginning of memory that a forked process gets.

    It is the length of the pickle, and the pickle, filled up to where a tensor may begin.
    """
    pickled = pickle.dumps(request)
    pickled = pickled.ljust(aligned(_HEADER_BYTES + len(pickled)) - _HEADER_BYTES, b"\0")
    return len(pickled).to_bytes(_HEADER_BYTES, "little") + pickled


def read_request(memory: int) -> tuple[Any, memoryview]:
    """Return the request in the memory of a descriptor, and what follows it there."""
    data = memoryview(mmap.mmap(memory, os.fstat(memory).st_size, mmap.MAP_PRIVATE, mmap.PROT_READ))
    begin = _HEADER_BYTES + int.from_bytes(data[:_HEADER_BYTES], "little")
    return pickle.loads(data[_HEADER_BYTES:begin]), data[begin:]  # noqa: S301  # The daemon wrote it.


def aligned(size_bytes: int) -> int:
    """Return a size rounded up to where a tensor may begin."""
    return -(-size_bytes // _ALIGNMENT) * _ALIGNMENT


def limit_resources(room_bytes: int, cpu_s: int | None = None, file_bytes: int = 0, descriptors: int = 64) -> None:
    """Limit what this process may take.

    Args:
        room_bytes: Bytes of address space beyond what it has.
        cpu_s: Seconds of processor time; None for no limit.
        file_bytes: Bytes of a file that it may allow itself. Now it may write none.
        descriptors: The number of descriptors.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most_bytes = pages * resource.getpagesize() + room_bytes
    if cpu_s is not None:
        # Above the soft limit the signal is SIGXCPU. The hard limit sends SIGKILL, as a host without memory does.
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + _CPU_MARGIN_S))
    for limit, soft, hard in (
        (resource.RLIMIT_AS, most_bytes, most_bytes),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, 0, file_bytes),
        (resource.RLIMIT_NOFILE, descriptors, descriptors),
    ):
        resource.setrlimit(limit, (soft, hard))
