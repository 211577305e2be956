"""The signals that ask a daemon to end."""

import os
import signal

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Keeps what comes until somebody waits for it, whichever thread the kernel gives it to.

    (Libraries such as numpy's have threads that block no signal, so none can be kept by blocking it.)
    """

    def __init__(self) -> None:
        """In the main thread, once in a process."""
        self._reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing)
        for number in _STOP_SIGNALS:
            signal.signal(number, lambda number, frame: None)
            signal.siginterrupt(number, False)

    def wait(self) -> None:
        """Wait for one of them. The next one ends the process at once."""
        while os.read(self._reading, 1)[0] not in _STOP_SIGNALS:
            pass  # Other signals have handlers of their own.
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
