"""Signal handlers that raise an exception at a chosen moment."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from waiting import until


@contextmanager
def raised_when(ask: Callable[[], object], error: BaseException | type[BaseException]) -> Iterator[None]:
    """Raise an error in this thread from a signal handler, as soon as `ask` returns true."""

    def handle(*_: object) -> None:
        raise error

    def send() -> None:
        until(ask)
        signal.pthread_kill(here, signal.SIGUSR1)

    here, former = threading.get_ident(), signal.signal(signal.SIGUSR1, handle)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, former)
