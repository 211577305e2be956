"""Futures whose callbacks keep no reply waiting."""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from nnrt_client.run.stamps import Stamps
from nnrt_client.session.latch import Latch

_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
Callback = Callable[[Future[Any]], object]


class CalledBackFuture(Future[ResultT]):
    """A future whose callbacks are called in threads for them.

    Who adds one takes no lock of concurrent.futures, for the main thread may be interrupted at any line.
    """

    # Those of the run, where it is one, and has succeeded.
    _stamps: Stamps | None = None

    def _call_back_in(self, call_back: Callable[..., object], ended: Latch) -> None:
        """Have `call_back` call the callbacks in another thread, once it has `ended`."""
        self._call_back = call_back
        self._ended = ended
        self._watchers: list[Callback] = []
        self._callbacks: list[Callback] = []
        self._callbacks_lock = threading.RLock()

    def add_done_callback(self, fn: Callable[[Future[ResultT]], object]) -> None:
        """Call this with the future when the run has ended, in a thread for callbacks; at once where it has."""
        if not self._is_put_off(self._callbacks, fn):
            self._call_all((fn,))

    def _watch(self, watcher: Callback) -> None:
        """Call this with the future when the run has ended, in the thread that ends it, which must not be kept waiting;
        at once where it has."""
        if not self._is_put_off(self._watchers, watcher):
            self._call_all((watcher,))

    def _is_put_off(self, callbacks: list[Callback], fn: Callback) -> bool:
        with self._callbacks_lock:
            if not self._ended.is_set:
                callbacks.append(fn)
                return True
        return False

    def _tell(self) -> None:
        """Have all be called, now that it has ended."""
        with self._callbacks_lock:
            watchers, self._watchers = self._watchers, []
            callbacks, self._callbacks = self._callbacks, []
        self._call_all(watchers)
        if callbacks:
            self._call_back(self._go_on, callbacks)

    def _go_on(self, callbacks: Sequence[Callback]) -> None:
        """Call those who wait in no thread."""
        if self._stamps is not None:
            self._stamps.wake()
        self._call_all(callbacks)

    def _call_all(self, callbacks: Sequence[Callback]) -> None:
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                _log.exception("a callback of %r failed", self)
