"""For tests of what is freed and when, not of who does it."""

from collections.abc import Callable

from nnrt_device_service.host.threads import Threads
from nnrt_device_service.memory.freeing import Freeing


class _NoThreads(Threads):
    def run(self, work: Callable[[], object]) -> None:
        work()


def freed_at_once() -> Freeing:
    """Frees things in the thread that gives them up."""
    return Freeing(_NoThreads("none"))
