"""Base of the resolvers, which find the addresses behind one name and report their changes."""

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

# Most addresses behind one name. More are no fleet, but a mistake or an attempt to make this process connect
# everywhere.
MOST_ADDRESSES = 1024
# A host's name has at most 253 characters, and a port 5.
_MOST_CHARACTERS = 260
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[\w.-]+):\d{1,5}", re.ASCII)
_UNIX = re.compile(r"unix:[^\x00]+")
# Pause after a failure.
_TRY_AGAIN_S = 1.0
# Time for a thread to end.
_END_S = 2.0


class Resolver(Closable, ABC):
    """Resolver of one name, which its scheme's factory makes; it knows the addresses for as long as it watches."""

    # What a message says after "no address is behind it".
    if_empty = "; check the name, and that a daemon runs there"

    def __init__(self, name: str, most_stale_s: float) -> None:
        """Take the name; while look-ups succeed, a change goes unnoticed for `most_stale_s` at most."""
        self.name = name
        self.most_stale_s = most_stale_s
        self._is_over = False
        self._is_failing = False
        # What was found last, and the part of it that the watcher knows.
        self._found: tuple[str, ...] | None = None
        self._published: tuple[str, ...] = ()
        self._changed: Changed = _ignore
        self._failed: Failed = _ignore
        self._thread: threading.Thread | None = None
        # What `_wait` waits for: unlike a condition, a signal handler can't leave it locked.
        self._nudges: queue.SimpleQueue[None] = queue.SimpleQueue()

    @abstractmethod
    def _follow(self) -> None:
        """Call `_publish` with all addresses, at first and whenever they may have changed.

        Go on until `_wait` says that the watch is over. Raises ConnectionFailed where there is no answer; this is then
        called again after a while.
        """

    def watch(self, changed: Changed, failed: Failed = lambda _: None) -> None:
        """Start a thread that watches the name until `close`.

        The thread calls `changed` with all addresses at first and at each change; no address is an answer as well. A
        failed look-up changes nothing. The first one of an outage is logged, and `failed` is called with it. This may
        be called once.
        """
        self._changed, self._failed = changed, failed
        self._thread = threading.Thread(target=self._run, name=f"nnrt-names {self.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the watch: the watcher is not called any more.

        Any thread may call this, even that of the watch. Calling it again does nothing.
        """
        self._is_over = True
        self._nudge()
        self._interrupt()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_END_S)

    def _interrupt(self) -> None:
        """End what `_follow` waits for in other ways than by `_wait`."""

    def _nudge(self) -> None:
        """End a `_wait`; any thread may call this."""
        self._nudges.put(None)

    def _wait(self, timeout_s: float | None = None) -> bool:
        """Wait for `timeout_s`, or for a nudge, and return whether the watch is over."""
        if not self._is_over:
            with suppress(queue.Empty):
                self._nudges.get(timeout=timeout_s)
        return self._is_over

    def _publish(self, addresses: Iterable[str]) -> None:
        """Call the watcher with all addresses, if they have changed."""
        if self._is_failing:
            self._is_failing = False
            _log.warning("%s: look-ups succeed again", self.name)
        found = tuple(addresses)
        if found != self._found and not self._is_over:
            self._found, self._published = found, sound_addresses(self.name, found)
            self._changed(self._published)

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
        known = "no address is known" if self._found is None else f"{len(self._published)} known addresses count on"
        _log.warning("%s; %s", error, known)
        self._failed(error)


class PollingResolver(Resolver):
    """Resolver that polls its source, which sends no updates."""

    @abstractmethod
    def _ask(self) -> tuple[tuple[str, ...], float]:
        """Return the addresses now, and the seconds after which to ask again; raise ConnectionFailed."""

    def _follow(self) -> None:
        is_over = False
        while not is_over:
            addresses, again_s = self._ask()
            self._publish(addresses)
            is_over = self._wait(again_s)


def sound_addresses(name: str, found: Iterable[str]) -> tuple[str, ...]:
    """Return the texts that can be addresses, each once and MOST_ADDRESSES at most; log which are left out."""
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


def _ignore(_: object) -> None:
    """Do nothing, as long as there is no watcher."""
