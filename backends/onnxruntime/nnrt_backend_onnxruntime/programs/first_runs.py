"""Trials of first runs: a separate process makes the first run of each kind, because ONNX Runtime may crash on it.

ONNX Runtime crashes mostly on tensors without elements. So the kind of a run is known if a run was tried whose
inputs have the same dimensions of 0, and if its other sizes are neither smaller nor much larger than those tried: such
sizes may make an inner tensor empty. If no tensor can be empty unless an input is, only runs with an empty input are
tried. A trial gets the inputs of its run.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import NnrtError, TimedOut, Unsupported
from nnrt_hdi.tensor import Shape

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

# Sizes up to this many times the largest one tried count as known.
_GROWTH = 16
# The most kinds and failed shapes that are remembered for one program.
_MOST_KEPT = 64
# A trial that timed out after less than this time may be repeated.
_LEAST_S = 30.0

Shapes = tuple[Shape, ...]


class FirstRuns:
    """Trials of one program's runs, shared by all models that are loaded from it."""

    def __init__(self, is_never_empty: bool) -> None:
        """Create the record of a program; `is_never_empty` says that no tensor is empty unless an input is."""
        self._is_never_empty = is_never_empty
        self._turn = threading.Condition()
        self._is_trying = False
        # Known sizes of each dimension. The key says which dimensions are not 0.
        self._sizes: OrderedDict[tuple[bool, ...], Sequence[range]] = OrderedDict()
        # Errors by shapes, each with the time in seconds. A run with more time than this is tried again.
        self._failures: OrderedDict[Shapes, tuple[NnrtError, float]] = OrderedDict()

    def is_known(self, shapes: Shapes) -> bool:
        """Return whether ONNX Runtime has computed a run of this kind of shapes."""
        dims = [dim for shape in shapes for dim in shape]
        if self._is_never_empty and all(dims):
            return True
        sizes = self._sizes.get(tuple(map(bool, dims)))
        return sizes is not None and all(dim in known for dim, known in zip(dims, sizes, strict=True))

    def require(self, shapes: Shapes, try_it: Callable[[], None], cancellation: Cancellation) -> None:
        """Call `try_it`, unless a run of the same kind was tried before.

        The daemon's time limit for compilations applies to the trial, because it opens the program again, and to the
        wait for another trial.

        Args:
            shapes: The shapes of the inputs.
            try_it: Tries the run.
            cancellation: Ends the trial and the waiting.

        Raises:
            NnrtError: `try_it` raises it, or the run is cancelled. Unsupported is raised again for the same shapes, and
                so is TimedOut until a run has more time than the trial had.
        """
        if self.is_known(shapes):
            return
        with cancellation.compiling(), self._one_at_a_time(cancellation):
            if self.is_known(shapes):
                return
            left_s = math.inf if cancellation.remaining is None else cancellation.remaining
            failure, most_s = self._failures.get(shapes, (None, 0.0))
            if failure is not None and left_s <= most_s:
                raise failure.copy()
            began = time.monotonic()
            try:
                try_it()
            except Unsupported as error:
                _remember(self._failures, shapes, (error.copy(), math.inf))
                raise
            except TimedOut:
                # If the run has time left, the daemon has ended the trial for another reason.
                if cancellation.remaining == 0 and (tried_s := time.monotonic() - began) >= _LEAST_S:
                    slow = f"ONNX Runtime had not run it after {tried_s:.0f} s; give it more time, or other inputs"
                    _remember(self._failures, shapes, (TimedOut(slow, place=describe_run(shapes)), left_s))
                raise
            self._add(shapes)

    def _add(self, shapes: Shapes) -> None:
        dims = [dim for shape in shapes for dim in shape]
        kind = tuple(map(bool, dims))
        known = self._sizes.get(kind) or [range(dim, dim) for dim in dims]
        sizes = [
            range(min(size.start, dim), max(size.stop, _GROWTH * dim + 1))
            for size, dim in zip(known, dims, strict=True)
        ]
        _remember(self._sizes, kind, sizes)

    @contextmanager
    def _one_at_a_time(self, cancellation: Cancellation) -> Iterator[None]:
        take_back = cancellation.on_cancel(self._wake)
        try:
            with self._turn:
                while self._is_trying:
                    cancellation.check()
                    self._turn.wait(cancellation.remaining)
                self._is_trying = True
        finally:
            take_back()
        try:
            yield
        finally:
            with self._turn:
                self._is_trying = False
                self._turn.notify_all()

    def _wake(self) -> None:
        with self._turn:
            self._turn.notify_all()


def describe_run(shapes: Sequence[Shape]) -> str:
    """Return the description of a run with inputs of these shapes, for messages."""
    return f"a run with inputs of the shapes {', '.join(str(list(shape)) for shape in shapes)}"


def _remember(entries: OrderedDict[KeyT, ValueT], key: KeyT, value: ValueT) -> None:
    """Add an entry, and drop the oldest ones beyond the limit."""
    entries[key] = value
    entries.move_to_end(key)
    while len(entries) > _MOST_KEPT:
        entries.popitem(last=False)
