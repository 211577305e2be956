"""Channel to the process of a model: one call at a time, with tensors in memory that both have mapped."""

import json
import math
import os
import select
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any

import numpy as np

from nnrt_device_service.isolation import messages
from nnrt_device_service.isolation.messages import CONTROL, LEAST_BYTES, MESSAGE, Layout, described, remember
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import OutOfMemory, error_class
from nnrt_hdi.forking import aligned
from nnrt_hdi.shared_memory import allocated
from nnrt_hdi.tensor import Array

Progress = Callable[[float], None]

# Bytes of memory that a channel keeps for its next call.
_KEPT_BYTES = 1 << 24
# Most bytes of JSON.
_MOST_JSON_BYTES = 1 << 24
_POLL_MS = 250
_SHAPE_AND_TYPE = attrgetter("shape", "dtype")


class ProcessEnded(Exception):
    """Error: the process has ended, or has sent what it may not. `had_ended`: it had ended before the call."""

    had_ended = False


class ProcessHadEnded(ProcessEnded):
    """Error: the process had ended before it got the call."""

    had_ended = True


class ModelFault(Exception):
    """Error: in the process an exception was raised that is no NnrtError. The text has its traceback."""


class Channel:
    """Channel, as the daemon has it. One thread uses it at a time."""

    def __init__(self, number: int, control: socket.socket, budget: MemoryBudget, kill: Callable[[], None]) -> None:
        """Open a channel. `kill` ends the process. Raises OutOfMemory, and ProcessHadEnded."""
        self.kill = kill
        self._number = number
        self._control = control
        self._budget = budget
        self._calls = self._size_bytes = 0
        # Whether no call is under way.
        self.is_idle = True
        self._socket, theirs = socket_pair()
        try:
            with theirs:
                opened = CONTROL.pack(number, 0)
                self._allocate(LEAST_BYTES, lambda fd: _send(control, opened, theirs.fileno(), fd))
        except BaseException:
            self.close()
            raise

    @property
    def is_kept(self) -> bool:
        """True if the channel can serve another call, and may keep its memory until then."""
        return self.is_idle and self._size_bytes <= _KEPT_BYTES

    def ask(
        self, kind: int, question: Any = None, progress: Progress | None = None, inputs: Sequence[Array] | None = None
    ) -> tuple[Any, bytes]:
        """Return the answer to a question, which is JSON, and the bytes behind it. Raises what `run` raises.

        `progress` is called again and again meanwhile. With `inputs` the question is about a run.
        """
        if inputs is None:
            data = json.dumps(question).encode()
            self._memory[: len(data)] = data
            end = aligned(len(data))
        else:
            layout = self._write(inputs, 0)
            data, end = layout.head, layout.end
        count, more = self._call(kind, math.inf, len(data), end, progress)
        return self._json(end, count), self._copy(end + count, more)

    def run(
        self,
        kind: int,
        inputs: Sequence[Array],
        cancellation: Cancellation,
        outputs: Sequence[Array | None],
        known_bytes: int,
        output_count: int,
    ) -> tuple[list[Array], Any]:
        """Run the model.

        Args:
            kind: RUN or PROFILE.
            inputs: As for `PreparedModel.run`.
            cancellation: As for `PreparedModel.run`. The caller resets its `elsewhere`.
            outputs: As for `PreparedModel.run`.
            known_bytes: Bytes of the outputs as far as known.
            output_count: Number of the outputs.

        Returns:
            The outputs, and the JSON that came with them.

        Raises:
            ProcessEnded: The process has ended, or must end.
            NnrtError: The model raised it.
            ModelFault: The model raised another exception.
        """
        layout = self._write(inputs, known_bytes)
        cancellation.elsewhere = _Call(self, self._calls + 1)
        deadline = math.inf if cancellation.deadline is None else cancellation.deadline
        count, more = self._call(kind, deadline, len(layout.head), layout.end, cancellation=cancellation)
        head = self._copy(layout.end, count, output_count * messages.MOST_SPEC_BYTES)
        key = layout, head, more
        if (views := self._answers.get(key)) is None:
            try:
                views = Layout(head, layout.end + count + more).views(self._memory)
            except ValueError as error:
                raise ProcessEnded(str(error)) from error
            remember(self._answers, key, views)
        results = [_taken(view, at, outputs) for at, view in enumerate(views)]
        return results, self._json(layout.end + count, more) if more else None

    def _write(self, inputs: Sequence[Array], known_bytes: int) -> Layout:
        """Write the inputs and their layout to the memory, where outputs of `known_bytes` find room, too."""
        key = tuple(map(_SHAPE_AND_TYPE, inputs))
        if (known := self._questions.get(key)) is None:
            head = described(inputs)
            layout = Layout(head, len(head))
            if (size_bytes := layout.end + known_bytes + LEAST_BYTES) > self._size_bytes:
                self._replace(size_bytes)
            known = remember(self._questions, key, (layout, layout.views(self._memory)))
        layout, views = known
        self._memory[: len(layout.head)] = layout.head
        for view, array in zip(views, inputs, strict=True):
            np.copyto(view, array)
        return layout

    def _call(
        self,
        kind: int,
        deadline: float,
        count: int,
        end: int,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> tuple[int, int]:
        """Send a request, and return the numbers of the reply. What the process needs of the memory ends at `end`."""
        self._calls += 1
        self.is_idle = False
        _send(self._socket, MESSAGE.pack(kind, deadline, count, self._calls))
        if cancellation is not None and cancellation.is_cancelled:
            self.cancel(self._calls)
        done = 0.0
        while True:
            if progress is not None:
                self._wait(progress, done)
            try:
                reply, fraction, size, more = MESSAGE.unpack(self._socket.recv(MESSAGE.size + 1))
            except (OSError, struct.error) as error:
                raise ProcessEnded from error
            if reply == messages.DONE:
                self.is_idle = True
                return size, more
            if reply == messages.FAILED:
                self.is_idle = True
                raise self._error(size)
            if reply == messages.ROOM:
                self._grow(size, end)
            elif reply == messages.PROGRESS and progress is not None:
                done = min(max(0.0, fraction), 1.0)  # NaN counts as 0.
            else:
                raise ProcessEnded(f"it sent the reply {reply}")

    def _wait(self, progress: Progress, done: float) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        progress(done)
        while not poll.poll(_POLL_MS):
            progress(done)

    def cancel(self, call: int) -> None:
        """Tell the process that the run of a call is cancelled. Any thread may call this; it doesn't wait."""
        with suppress(OSError):  # It has ended; or it reads nothing, and will be ended.
            self._control.send(CONTROL.pack(self._number, call), socket.MSG_DONTWAIT)

    def _error(self, count: int) -> Exception:
        """Return the error that the process reports."""
        match self._json(0, count):
            case [int(code), str(message), str(place)]:
                return error_class(code)(_printable(message), place=_printable(place))
            case [None, str(text), _]:
                return ModelFault("\n    ".join(map(_printable, text.splitlines())))
        return ProcessEnded("its error is none")

    def _json(self, start: int, count: int) -> Any:
        try:
            return json.loads(self._copy(start, count, _MOST_JSON_BYTES))
        except (ValueError, RecursionError) as error:
            raise ProcessEnded("its answer is no JSON") from error

    def _copy(self, start: int, count: int, most: int = 1 << 63) -> bytes:
        """Return a part of the memory, which the process can't change any more."""
        if count > most or start + count > self._size_bytes:
            raise ProcessEnded(f"its answer has {count} bytes")
        return bytes(self._memory[start : start + count])

    def _grow(self, size_bytes: int, end: int) -> None:
        """Allocate more memory for the reply, copy the bytes up to `end`, and send it; or reply that there is none."""
        former = self._memory
        try:
            self._replace(max(size_bytes, end))
        except OutOfMemory:
            _send(self._socket, MESSAGE.pack(messages.MEMORY, 0.0, 0, 0))
        else:
            self._memory[:end] = former[:end]

    def _replace(self, size_bytes: int) -> None:
        def send(fd: int) -> None:
            _send(self._socket, MESSAGE.pack(messages.MEMORY, 0.0, size_bytes, 0))
            _send(self._socket, b"m", fd)

        self._allocate(size_bytes, send)

    def _allocate(self, size_bytes: int, send: Callable[[int], None]) -> None:
        """Allocate memory instead of what there is, and send it to the process."""
        size_bytes = 1 << (size_bytes - 1).bit_length()
        self._budget.reserve(size_bytes)
        try:
            fd, memory = allocated(size_bytes, "nnrt-isolated")
            try:
                send(fd)
            finally:
                os.close(fd)
        except BaseException:
            self._budget.release(size_bytes)
            raise
        self._release(size_bytes, memory)

    def _release(self, size_bytes: int, memory: memoryview) -> None:
        """Take other memory, and give the former back."""
        former_bytes, self._size_bytes, self._memory = self._size_bytes, size_bytes, memory
        # Layout and views of inputs, by their shapes and types; views of outputs, by what decides them.
        self._questions: dict[Any, tuple[Layout, list[Array]]] = {}
        self._answers: dict[Any, list[Array]] = {}
        if former_bytes:
            self._budget.release(former_bytes)

    def close(self) -> None:
        """Release the memory. Idempotent."""
        self._socket.close()
        self._release(0, memoryview(b""))


class _Call:
    """Call of a channel that is a run. The channel may have another one already."""

    __slots__ = ("_channel", "_number")

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel = channel
        self._number = number

    def cancel(self) -> None:
        self._channel.cancel(self._number)

    def kill(self) -> None:
        self._channel.kill()


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets of packets. Raises OutOfMemory if no descriptor is left."""
    try:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise OutOfMemory(f"the daemon's host has nothing left for a channel ({error.strerror})") from error


def _send(to: socket.socket, message: bytes, *fds: int) -> None:
    """Send a message, and don't wait: a process that works as it should has read those before."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))] if fds else []
    try:
        to.sendmsg([message], rights, socket.MSG_DONTWAIT)
    except BlockingIOError as error:
        raise ProcessEnded("it reads no messages") from error
    except OSError as error:
        raise ProcessHadEnded from error


def _taken(view: Array, at: int, outputs: Sequence[Array | None]) -> Array:
    """Return an output in the memory that the daemon wants it in, or in memory of its own."""
    wanted = outputs[at] if at < len(outputs) else None
    if wanted is None or _SHAPE_AND_TYPE(wanted) != _SHAPE_AND_TYPE(view):
        copied: Array = view.copy()
        return copied
    np.copyto(wanted, view)
    return wanted


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)
