"""Waiting, with a deadline, for what gives no sign: a file of /proc, a log, the state of another process."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")

DEADLINE_S = 30.0


def until(ask: Callable[[], ResultT], state: Callable[[], object] | None = None) -> ResultT:
    """Ask until the answer is true, and give it. In between all others on this core may run, as on a busy machine.

    Where that is never so, the failure tells what `state` gives, or else the last answer.
    """
    deadline = time.monotonic() + DEADLINE_S
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"it did not come to what was waited for: {state() if state else answer}"
        os.sched_yield()
    return answer
