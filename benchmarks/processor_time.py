"""Processor time of processes, which says what work costs whoever else is at work on the machine."""

import time
from collections.abc import Iterable

# Of the clock of a process, as clock_getcpuclockid(3) makes it: all its threads, their own code and the kernel.
_OF_ALL_THREADS = 2


def processor_s(pids: Iterable[int]) -> float:
    """Seconds for which these processes have had a processor."""
    return sum(time.clock_gettime(~pid << 3 | _OF_ALL_THREADS) for pid in pids)
