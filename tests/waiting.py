"""Waiting, with a deadline, for what gives no sign: a file of /proc, a log, the state of another process."""

import time
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")

DEADLINE_S = 30.0
# Between two questions: twice as long each time, up to the second.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.016


def until(ask: Callable[[], ResultT], state: Callable[[], object] | None = None) -> ResultT:
    """Ask until the answer is true, and give it. In between is a moment in which the processor is for those who are
    waited for, and for other tests.

    Where that is never so, the failure tells what `state` gives, or else the last answer.
    """
    deadline, pause_s = time.monotonic() + DEADLINE_S, _FIRST_PAUSE_S
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"it did not come to what was waited for: {state() if state else answer}"
        time.sleep(pause_s)  # noqa: TID251  # The only one of the tests.
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return answer
