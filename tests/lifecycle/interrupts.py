"""Signals during the main thread's work: at random moments, or at each point where Python handles signals."""

import _thread
import dis
import inspect
import linecache
import random
import select
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection
from concurrent import futures
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, ClassVar

from typing_extensions import Self

import nnrt_client

_OURS = str(Path(nnrt_client.__file__).parent)
# A signal in CPython's own wait functions may lose a lock. The client can't prevent it if the application calls them.
_CPYTHONS = (threading.__file__, str(Path(futures.__file__).parent / "_base.py"))
# The interpreter handles signals after these opcodes.
_POINTS = ("BEFORE_WITH", "CALL", "FOR_ITER", "JUMP", "LOAD_SPECIAL", "POP_JUMP", "PRECALL", "SEND", "SETUP_WITH")

_AT_ONCE_S = 2e-5, 5e-4


class Interrupts:
    """Signal handler that calls `action`."""

    # Code locations of the latest interrupts, for debugging.
    places: ClassVar[deque[str]] = deque(maxlen=8)

    def __init__(self, action: Callable[[], object]) -> None:
        self.count = 0
        self._action = action
        # Number of interrupts that may still come.
        self.left = 0
        signal.signal(signal.SIGALRM, self._alarm)

    def _alarm(self, number: int, frame: FrameType | None) -> None:
        if self.left and frame is not None and not _is_in_applications_wait(frame):
            self.left -= 1
            self.count += 1
            self.places.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
            self._action()


class RandomInterrupts(Interrupts):
    """Interrupts at random moments from a seed, `apart_s` apart, and sometimes two in quick succession."""

    def __init__(self, action: Callable[[], object], seed: int, apart_s: tuple[float, float]) -> None:
        super().__init__(action)
        self._random = random.Random(seed)  # noqa: S311
        self._apart_s = apart_s
        # A signal may arrive late, after the last interrupt.
        self._is_over = False

    def __enter__(self) -> Self:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        return self

    def __exit__(self, *_: object) -> None:
        self.left, self._is_over = 0, True
        signal.setitimer(signal.ITIMER_REAL, 0)

    def call(self, function: Callable[[], object]) -> int:
        """Call a function during interrupts, and return the number of interrupts that reached it."""
        before = self.count
        try:
            try:
                self.left = self._random.choice((1, 1, 2))
                function()
                self.left = 0
            except KeyboardInterrupt:
                self.left = 0
        except KeyboardInterrupt:  # The second.
            pass
        return self.count - before

    def _alarm(self, number: int, frame: FrameType | None) -> None:
        if self._is_over:
            return
        apart_s = _AT_ONCE_S if self.left > 1 else self._apart_s
        signal.setitimer(signal.ITIMER_REAL, self._random.uniform(*apart_s))
        super()._alarm(number, frame)


class _Trigger:
    """Object whose deallocation sends the signal.

    It does so in C, so that Python's next step handles the signal.
    """

    __del__ = staticmethod(partial(_thread.interrupt_main, signal.SIGALRM))


class Hesitation:
    """Delay of other threads at their calls of the given client functions."""

    def __init__(self, functions: Collection[str], seconds: float) -> None:
        self._functions = functions
        self._seconds = seconds
        # Number of delays by function, which a test checks.
        self.counts: Counter[str] = Counter()
        threading.setprofile(self._hesitate)

    def _hesitate(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name in self._functions and code.co_filename.startswith(_OURS):
            self.counts[code.co_name] += 1
            select.select((), (), (), self._seconds)


class InterruptAt(Interrupts):
    """One interrupt, at the point with this number in the client and in the functions that it calls."""

    def __init__(self, action: Callable[[], object], point: int) -> None:
        super().__init__(action)
        self._before = point
        self._codes: dict[CodeType, bytes] = {}

    def call(self, function: Callable[[], object]) -> None:
        """Call a function, and let an exception of the action pass."""
        self.left = 1
        # Python 3.12 traces opcodes only if a frame has asked for it before the tracer is set.
        frame = inspect.currentframe()
        assert frame is not None
        frame.f_trace_opcodes = True
        sys.settrace(self._trace)
        try:
            function()
        finally:
            sys.settrace(None)
            self.left = 0

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        caller = frame.f_back
        if frame.f_code.co_filename.startswith(_OURS) or (caller is not None and caller.f_trace is not None):
            # Python 3.13 traces the opcodes of a frame only where it has a tracer when that is asked for.
            frame.f_trace = self._step
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
            _trigger = self._passed()
            return self._step
        return None

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            if (code := self._codes.get(frame.f_code)) is None:
                code = self._codes[frame.f_code] = frame.f_code.co_code  # co_code creates a new object at each access.
            if dis.opname[code[frame.f_lasti]].startswith(_POINTS):
                _trigger = self._passed()
        return self._step

    def _passed(self) -> _Trigger | None:
        """Count a point.

        The signal is sent when the tracer has returned and drops the returned object.
        """
        self._before -= 1
        if self._before:
            return None
        sys.settrace(None)  # Otherwise the tracer would handle the signal.
        return _Trigger()


def _is_in_applications_wait(frame: FrameType) -> bool:
    """Return whether the frame is in a CPython lock on which the application waits, not the client."""
    if frame.f_code.co_filename != threading.__file__:
        return False
    if frame.f_code.co_name not in ("__enter__", "__exit__"):
        line = linecache.getline(threading.__file__, frame.f_lineno or 0)
        if "_release_save" not in line:  # Not where Condition.wait releases its lock.
            return False
    outer: FrameType | None = frame
    while outer is not None and outer.f_code.co_filename in _CPYTHONS:
        outer = outer.f_back
    return outer is None or not outer.f_code.co_filename.startswith(_OURS)
