"""Models of a device that works on several runs without a thread for each."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import cast

from nnrt_hdi.backend.cancellation import Cancellation
from nnrt_hdi.backend.interface import PreparedModel
from nnrt_hdi.tensor import Array

_log = logging.getLogger(__name__)

# End of a run: its outputs, or its exception.
RunEnd = Sequence[Array] | BaseException


class FirstEnd:
    """Callback for ends of a run: passes on the first one, and logs any other. Any thread may call it."""

    __slots__ = ("_on_ends",)

    def __init__(self, on_end: Callable[[RunEnd], object]) -> None:
        # In a list, so that only one thread can take it, and a backend that keeps this object keeps nothing of the run.
        self._on_ends = [on_end]

    def __call__(self, end: RunEnd) -> None:
        try:
            on_end = self._on_ends.pop()
        except IndexError:
            failure = end if isinstance(end, BaseException) else None
            _log.error("the backend ended a run that had ended already; the second end is ignored", exc_info=failure)
        else:
            on_end(end)


class StartableModel(PreparedModel):
    """Compiled model of a device that works on several runs without a thread for each.

    The daemon calls `start` instead of `run`, and gets the results of a run later.
    """

    @abstractmethod
    def start(
        self,
        inputs: Sequence[Array],
        cancellation: Cancellation,
        outputs: Sequence[Array | None],
        on_end: Callable[[RunEnd], None],
    ) -> None:
        """Start a run and return without waiting for the device. Several threads may call this at once.

        A cancelled run must end soon, with any result: nobody gets it. Listen to `cancellation`, which the daemon also
        cancels at its deadline, and remove the listener before `on_end` if what it would stop is gone then. A run that
        doesn't end counts as a stuck device. The daemon calls `close` after `on_end` of every run, never within it.

        Args:
            inputs: As for `run`, valid until `on_end` is called.
            cancellation: As for `run`.
            outputs: As for `run`, valid until `on_end` is called.
            on_end: Takes what `run` would return or raise. Call it exactly once for each started run, from any thread,
                also for a cancelled run; it may come before this returns. From then on the device must not touch memory
                of the run. `on_end` reads and sends the results, waits for no client and raises nothing. A second call
                is ignored and logged.

        Raises:
            Exception: As `run`. Nothing was started then, and `on_end` must not be called.
        """

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        """Start a run and wait until it ends."""
        return ended(lambda on_end: self.start(inputs, cancellation, outputs, on_end), cancellation)


def ended(start: Callable[[Callable[[RunEnd], None]], None], cancellation: Cancellation) -> list[Array]:
    """Start a run and wait until it ends.

    Args:
        start: Starts the run, given its `on_end`.
        cancellation: The run's cancellation, which expires at its deadline.

    Returns:
        The outputs.
    """
    ends: SimpleQueue[RunEnd] = SimpleQueue()
    start(FirstEnd(ends.put))
    try:
        end = ends.get(timeout=cancellation.remaining)
    except Empty:
        cancellation.expire()
        end = ends.get()
    if isinstance(end, BaseException):
        raise end
    # The daemon checks that it is a list of arrays.
    return list(end) if isinstance(end, tuple) else cast("list[Array]", end)
