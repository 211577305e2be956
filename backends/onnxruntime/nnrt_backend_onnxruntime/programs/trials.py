"""Trials: a separate process opens a program's session and makes its first runs, because ONNX Runtime may crash.

If the process survives, the daemon does the same. A malicious file may control that process, so the daemon gets back
only how it ended.
"""

import math
import os
import select
import signal
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import accumulate

import onnxruntime
from nnrt_onnx_lowering.value import AnyArray

from nnrt_backend_onnxruntime.programs.first_runs import FirstRuns, describe_run
from nnrt_backend_onnxruntime.programs.trial_process import (
    MAX_MESSAGE_BYTES,
    MOST_CPU_S,
    REFUSED,
    Request,
)
from nnrt_backend_onnxruntime.providers import ProviderDevice
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import OperationFailed, OutOfMemory, TimedOut, Unsupported
from nnrt_hdi.forking import SEPARATOR, ForkServer, aligned, packed_request
from nnrt_hdi.packed_values import STRINGS, ValueType
from nnrt_hdi.tensor import Array, flat_bytes

# The limit of a trial's duration: it may also have to wait for a processor.
MOST_S = 4 * MOST_CPU_S
_POLL_S = 0.25
# The number of programs whose trials are remembered.
_MOST_PROGRAMS = 256
_STRINGS = ValueType(STRINGS)
_ENTRY = "nnrt_backend_onnxruntime.programs.trial_process:prepare"


class Crashed(Unsupported, code=Unsupported.code, status=Unsupported.grpc_status):
    """Error of a trial in which ONNX Runtime crashed while it opened or ran a session."""


class Refused(OperationFailed, code=OperationFailed.code, status=OperationFailed.grpc_status):
    """Error of a trial in which ONNX Runtime refused a model or inputs.

    `kind` is the name of ONNX Runtime's error class, `text` its message.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"ONNX Runtime does not take the model: {text}")
        self.kind = kind
        self.text = text


class Trials(ForkServer):
    """Server of the processes in which programs are tried. All methods are thread-safe."""

    def __init__(self) -> None:
        super().__init__(_ENTRY, "", "ONNX files are tried")
        self._known_lock = threading.Lock()
        # The memory in bytes that the daemon's runs may take together.
        self.run_bytes = 0
        # The trials of the latest programs, by the digest of what a program is loaded from.
        self.known_runs: OrderedDict[bytes, FirstRuns] = OrderedDict()

    def begin(
        self,
        model: bytes,
        weights: Mapping[str, AnyArray],
        device: ProviderDevice,
        config: ModelConfig,
        entries: Mapping[str, str],
        *,
        is_optimized: bool,
        inputs: Mapping[str, Array] | None = None,
    ) -> "Trial":
        """Start the trial of a model: its opening, and with inputs also a run."""
        given = [*weights.items(), *(inputs or {}).items()]
        arrays = [flat_bytes(_STRINGS.pack(array) if array.dtype.hasobject else array) for _, array in given]
        *offsets, size_bytes = accumulate(map(aligned, (len(model), *(data.nbytes for data in arrays))), initial=0)
        places = [
            (name, array.dtype.str, (data.nbytes,) if array.dtype.hasobject else array.shape, offset)
            for (name, array), data, offset in zip(given, arrays, offsets[1:], strict=True)
        ]
        count = len(weights)
        request = Request(
            device,
            config,
            entries,
            is_optimized,
            len(model),
            places[:count],
            None if inputs is None else places[count:],
            0 if inputs is None else self.run_bytes,
        )
        beginning = packed_request(request)
        start = len(beginning)
        memory = os.memfd_create("nnrt-trial", os.MFD_CLOEXEC)
        try:
            os.truncate(memory, start + size_bytes)
            os.pwritev(memory, [beginning, model], 0)
            for data, offset in zip(arrays, offsets[1:], strict=True):
                _write(memory, data, start + offset)
            place = "" if inputs is None else describe_run([array.shape for array in inputs.values()])
            return Trial(self.request([memory]), place)
        finally:
            os.close(memory)

    def first_runs(self, source: bytes, is_never_empty: bool) -> FirstRuns:
        """Return the trials of a program's runs. `source` is the digest of the data that the program is loaded from."""
        with self._known_lock:
            first_runs = self.known_runs.pop(source, None) or FirstRuns(is_never_empty)
            self.known_runs[source] = first_runs
            while len(self.known_runs) > _MOST_PROGRAMS:
                self.known_runs.popitem(last=False)
        return first_runs


class Trial(Closable):
    """Trial under way. `close` ends it."""

    def __init__(self, reply: socket.socket, place: str) -> None:
        """Wrap the socket of a requested trial. `place` describes the run, and is empty if there is none."""
        self._reply = reply
        self.place = place
        self.deadline = time.monotonic() + MOST_S

    def require_success(self, waiting: Callable[[], None], deadline: float | None = None) -> None:
        """Wait for the end of the trial.

        Args:
            waiting: Called again and again meanwhile, and at the deadline.
            deadline: A time on the clock of time.monotonic.

        Raises:
            Crashed: ONNX Runtime crashed.
            Refused: ONNX Runtime refused the model or the inputs.
            Unsupported: The trial takes too much processor time, or the session isn't opened in time.
            TimedOut: The run isn't over in time.
            OutOfMemory: The host has no memory or no process left.
            OperationFailed: The process has ended, or `give_up` was called.
        """
        message, separator, status = self._answer(waiting, math.inf if deadline is None else deadline).rpartition(
            SEPARATOR
        )
        if not separator:
            raise OperationFailed(
                "the process that tries files has ended, and the daemon's log may say why; try it again"
            )
        self._require_success(int(status), message.decode(errors="replace"))

    def give_up(self) -> None:
        """Make `require_success` raise OperationFailed at once. Any thread may call it."""
        with suppress(OSError):  # The trial has ended.
            self._reply.shutdown(socket.SHUT_RD)

    def _answer(self, waiting: Callable[[], None], deadline: float) -> bytes:
        answer, poll = b"", select.poll()
        poll.register(self._reply, select.POLLIN)
        while time.monotonic() < self.deadline and len(answer) <= 2 * MAX_MESSAGE_BYTES:
            if not poll.poll(1000 * min(_POLL_S, max(deadline - time.monotonic(), 0))):
                waiting()
            elif piece := self._reply.recv(MAX_MESSAGE_BYTES):
                answer += piece
            else:
                return answer
        if self.place:
            raise TimedOut(f"ONNX Runtime has not run it after {MOST_S} s", place=self.place)
        raise Unsupported(f"ONNX Runtime has not opened it after {MOST_S} s")

    def close(self) -> None:
        """End the trial. Idempotent."""
        self._reply.close()

    def _require_success(self, status: int, text: str) -> None:
        if status == REFUSED:
            kind, _, message = text.partition(" ")
            raise Refused(kind, message)
        if status == -signal.SIGKILL:
            raise OutOfMemory(
                "the daemon's host had no process left to try it, or has killed that, as it does where memory is short;"
                " try later",
                place=self.place,
            )
        if status == -signal.SIGXCPU:
            raise Unsupported(
                f"{'running' if self.place else 'opening'} it takes ONNX Runtime more than {MOST_CPU_S} s of the"
                " processor for each thread",
                place=self.place,
            )
        if status:
            name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            other = "run it with inputs of other shapes (without a dimension of 0), " if self.place else ""
            raise Crashed(
                f"ONNX Runtime {onnxruntime.__version__} crashes on it ({name}); {other}export it in another way, or"
                " have the daemon use another version of ONNX Runtime",
                place=self.place,
            )


def _write(fd: int, data: memoryview, offset: int) -> None:
    """Write all data; one call writes 2 GiB at most."""
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written
