"""Waiting with a deadline for a state that can only be polled: a file of /proc, a log, another process."""

import time
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")

DEADLINE_S = 30.0
# First and longest pause between two calls; each pause is twice as long as the one before.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.016


def until(ask: Callable[[], ResultT], state: Callable[[], object] | None = None) -> ResultT:
    """Call `ask` until its result is true, and return it.

    Fails after DEADLINE_S with `state`'s result, or with the last result. It sleeps between calls, so that the
    processor is free for other processes and tests.
    """
    deadline, pause_s = time.monotonic() + DEADLINE_S, _FIRST_PAUSE_S
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"it did not come to what was waited for: {state() if state else answer}"
        time.sleep(pause_s)  # noqa: TID251  # The only sleep in the tests.
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return answer
