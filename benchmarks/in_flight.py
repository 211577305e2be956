"""A client that keeps so many runs under way."""

import time
from collections import deque
from typing import Any

from nnrt_client import Executor


def runs_at_a_time(executor: Executor, x: list[Any], in_flight: int, window_s: float) -> int:
    """Keep so many runs under way for a while; how many ended in it."""
    ended, end = 0, time.monotonic() + window_s
    under_way = deque(executor.submit(x) for _ in range(in_flight))
    while time.monotonic() < end:
        under_way.popleft().result()
        ended += 1
        under_way.append(executor.submit(x))
    for run in under_way:
        run.result()
    return ended
