"""Freeing without threads, for tests of what is freed and when."""

from collections.abc import Callable

from nnrt_device_service.host.threads import Threads
from nnrt_device_service.memory.freeing import Freeing


class _NoThreads(Threads):
    def run(self, work: Callable[[], object]) -> None:
        work()


def freed_at_once() -> Freeing:
    """Return a `Freeing` that frees objects in the calling thread."""
    return Freeing(_NoThreads("none"))
