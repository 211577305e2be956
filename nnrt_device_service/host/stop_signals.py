"""Signals that ask a daemon to end."""

import os
import signal

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Receiver that keeps SIGTERM and SIGINT until `wait`, whichever thread the kernel delivers them to.

    Blocking the signals wouldn't do: libraries such as numpy's have threads that block no signal.
    """

    def __init__(self) -> None:
        """Install the handlers. Call it in the main thread, once per process."""
        self._reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing)
        for number in _STOP_SIGNALS:
            signal.signal(number, lambda number, frame: None)
            signal.siginterrupt(number, False)

    def wait(self) -> None:
        """Wait for one of the signals. Afterwards the next one ends the process at once."""
        while os.read(self._reading, 1)[0] not in _STOP_SIGNALS:
            pass  # Other signals have handlers of their own.
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
