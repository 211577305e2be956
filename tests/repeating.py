"""Threads that repeat a step."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

_JOIN_S = 60.0


@contextmanager
def repeating(steps: Sequence[Callable[[], object]]) -> Iterator[None]:
    """Call each step again and again in its own thread, until the block ends.

    Waits for the threads.
    """
    is_over = threading.Event()

    def repeat(step: Callable[[], object]) -> None:
        while not is_over.is_set():
            step()

    threads = [threading.Thread(target=repeat, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join(_JOIN_S)
            assert not thread.is_alive(), "a step does not end"
