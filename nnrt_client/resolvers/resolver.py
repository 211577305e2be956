"""What finds the addresses behind one name, and tells when they change."""

import logging
import queue
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress

from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import ConnectionFailed
from nnrt_hdi.text import escape_for_terminal

_log = logging.getLogger(__name__)

Changed = Callable[[tuple[str, ...]], None]
Failed = Callable[[ConnectionFailed], None]

# Behind one name. More are no fleet but a mistake, or somebody who wants this process to connect everywhere.
MOST_ADDRESSES = 1024
# A host's name has 253 characters at most, and a port 5.
_MOST_CHARACTERS = 260
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[\w.-]+):\d{1,5}", re.ASCII)
_UNIX = re.compile(r"unix:[^\x00]+")
# After a failure.
_TRY_AGAIN_S = 1.0
# What a thread gets to end.
_END_S = 2.0


class Resolver(Closable, ABC):
    """The addresses behind a name, as long as it is watched. Made by the factory of its scheme."""

    def __init__(self, name: str, most_stale_s: float) -> None:
        """`most_stale_s` bounds how long what changes may go unnoticed, as long as look-ups succeed."""
        self.name = name
        self.most_stale_s = most_stale_s
        self._is_over = False
        self._is_failing = False
        # What was found last, and what of it was told.
        self._found: tuple[str, ...] | None = None
        self._told: tuple[str, ...] = ()
        self._changed: Changed = _nobody
        self._failed: Failed = _nobody
        self._thread: threading.Thread | None = None
        # What `_wait` waits for, of a kind that a signal handler can't leave locked.
        self._nudges: queue.SimpleQueue[None] = queue.SimpleQueue()

    @abstractmethod
    def _follow(self) -> None:
        """Call `_tell` with all addresses at first, and whenever they may have changed, until `_wait` says that it is
        over. Raises ConnectionFailed where there is no answer; it is called again after a while then."""

    def watch(self, changed: Changed, failed: Failed = lambda _: None) -> None:
        """Have a thread watch the name until `close`. It calls `changed` with all addresses, then and at each change.

        None is an answer as well. A look-up that fails changes nothing; the first one of an outage is logged, and
        `failed` is called with it. Called once.
        """
        self._changed, self._failed = changed, failed
        self._thread = threading.Thread(target=self._run, name=f"nnrt-names {self.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the watch; nothing is told any more. Idempotent, and for any thread, that of the watch as well."""
        self._is_over = True
        self._nudge()
        self._interrupt()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_END_S)

    def _interrupt(self) -> None:
        """End what `_follow` waits for other than by `_wait`."""

    def _nudge(self) -> None:
        """End a `_wait`. For any thread."""
        self._nudges.put(None)

    def _wait(self, timeout_s: float | None = None) -> bool:
        """Wait so long, or for a nudge; whether the watch is over."""
        if not self._is_over:
            with suppress(queue.Empty):
                self._nudges.get(timeout=timeout_s)
        return self._is_over

    def _tell(self, addresses: Iterable[str]) -> None:
        """Tell the watcher all addresses, if they are others than before."""
        if self._is_failing:
            self._is_failing = False
            _log.warning("%s: look-ups succeed again", self.name)
        found = tuple(addresses)
        if found != self._found and not self._is_over:
            self._found, self._told = found, sound_addresses(self.name, found)
            self._changed(self._told)

    def _run(self) -> None:
        while not self._is_over:
            try:
                self._follow()
            except ConnectionFailed as error:
                self._note(error)
            except Exception as error:
                _log.exception("%s: a look-up failed for a reason of our own", self.name)
                self._note(ConnectionFailed(f"the look-up failed: {error}", place=self.name))
            self._wait(_TRY_AGAIN_S)

    def _note(self, error: ConnectionFailed) -> None:
        if self._is_failing or self._is_over:
            return
        self._is_failing = True
        known = "no address is known" if self._found is None else f"{len(self._told)} known addresses count on"
        _log.warning("%s; %s", error, known)
        self._failed(error)


class PollingResolver(Resolver):
    """One whose source says nothing by itself, and is asked again and again."""

    @abstractmethod
    def _ask(self) -> tuple[tuple[str, ...], float]:
        """The addresses now, and the seconds after which to ask again. Raises ConnectionFailed."""

    def _follow(self) -> None:
        is_over = False
        while not is_over:
            addresses, again_s = self._ask()
            self._tell(addresses)
            is_over = self._wait(again_s)


def sound_addresses(name: str, found: Iterable[str]) -> tuple[str, ...]:
    """Those that may be addresses, each once and at most MOST_ADDRESSES; the log says what is left out."""
    sound: dict[str, None] = {}
    for address in found:
        if len(sound) == MOST_ADDRESSES:
            _log.warning("%s: there are more than %d addresses; the others are left out", name, MOST_ADDRESSES)
            break
        if len(address) <= _MOST_CHARACTERS and (_ADDRESS.fullmatch(address) or _UNIX.fullmatch(address)):
            sound[address] = None
        else:
            shown = escape_for_terminal(address[:_MOST_CHARACTERS])
            _log.warning("%s: '%s' is no address and left out; HOST:PORT or unix:PATH would be one", name, shown)
    return tuple(sound)


def _nobody(_: object) -> None:
    """Nobody watches yet."""
