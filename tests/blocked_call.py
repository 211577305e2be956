"""A call in its own thread, for tests of calls that block."""

import threading
import time
from collections.abc import Callable
from typing import Any

from nnrt_client import NnrtError

# A call that has not returned after this long is taken to wait for the daemon.
_SETTLE_S = 0.2
DEADLINE_S = 20.0


class BlockedCall:
    """Call in its own thread, begun by the constructor.

    `wait` keeps an NnrtError in `error`. Any other exception ends the thread, and fails the test.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.error: NnrtError | None = None
        self.result: Any = None
        self.ended_at = 0.0
        self._thread = threading.Thread(target=self._run, name="blocked call")
        self._thread.start()

    def require_blocked(self) -> None:
        self._thread.join(_SETTLE_S)
        assert self._thread.is_alive(), f"the call was to block; it gave {self.result!r} and raised {self.error!r}"

    def wait(self) -> "BlockedCall":
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the call does not end"
        return self

    def _run(self) -> None:
        try:
            self.result = self._call()
        except NnrtError as error:
            self.error = error
        finally:
            self.ended_at = time.monotonic()
