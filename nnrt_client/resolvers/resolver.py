"""Base of resolvers, which find the addresses of one name and report their changes."""

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

# Limit of the addresses of one name. More are a mistake, or an attempt to make this process connect everywhere.
MOST_ADDRESSES = 1024
# Limit of an address's length: a host name has at most 253 characters, and a port 5.
_MOST_CHARACTERS = 260
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[\w.-]+):\d{1,5}", re.ASCII)
_UNIX = re.compile(r"unix:[^\x00]+")
# Pause after a failure.
_TRY_AGAIN_S = 1.0
# Time for a thread to end.
_END_S = 2.0


class Resolver(Closable, ABC):
    """Base of resolvers of one name. The entry point of the name's scheme creates one."""

    # What a message says after "no address is behind it".
    if_empty = "; check the name, and that a daemon runs there"

    def __init__(self, name: str, most_stale_s: float) -> None:
        """Create it. While look-ups succeed, it notices each change within `most_stale_s`."""
        self.name = name
        self.most_stale_s = most_stale_s
        self._is_over = False
        self._is_failing = False
        # The addresses that were last found, and the valid ones among them, which `changed` got.
        self._found: tuple[str, ...] | None = None
        self._published: tuple[str, ...] = ()
        self._changed: Changed = _ignore
        self._failed: Failed = _ignore
        self._thread: threading.Thread | None = None
        # Wakes `_wait`. A queue, because a signal handler's exception could leave a threading.Condition locked.
        self._nudges: queue.SimpleQueue[None] = queue.SimpleQueue()

    @abstractmethod
    def _follow(self) -> None:
        """Call `_publish` with all addresses, first at once and then whenever they may have changed.

        Implementations return when `_wait` returns True. If a look-up fails they raise ConnectionFailed, and are called
        again after a while.
        """

    def watch(self, changed: Changed, failed: Failed = lambda _: None) -> None:
        """Start a thread that watches the name until `close`. Call this only once.

        The thread calls `changed` with all addresses (perhaps none), first at once and then at each change. A failed
        look-up changes nothing. The thread logs the first failure after a success, and calls `failed` with it.
        """
        self._changed, self._failed = changed, failed
        self._thread = threading.Thread(target=self._run, name=f"nnrt-names {self.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the watch: the functions given to `watch` are not called any more. Idempotent.

        Any thread may call this, also the watching thread.
        """
        self._is_over = True
        self._nudge()
        self._interrupt()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_END_S)

    def _interrupt(self) -> None:
        """Wake `_follow` if it waits for anything else than `_wait`."""

    def _nudge(self) -> None:
        """Wake `_wait`. Any thread may call this."""
        self._nudges.put(None)

    def _wait(self, timeout_s: float | None = None) -> bool:
        """Wait for `timeout_s`, or for `_nudge`. Return whether the watch has ended."""
        if not self._is_over:
            with suppress(queue.Empty):
                self._nudges.get(timeout=timeout_s)
        return self._is_over

    def _publish(self, addresses: Iterable[str]) -> None:
        """Call `changed` with all valid addresses, if they have changed."""
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
        """Return the addresses now, and the seconds until the next call. Raise ConnectionFailed."""

    def _follow(self) -> None:
        is_over = False
        while not is_over:
            addresses, again_s = self._ask()
            self._publish(addresses)
            is_over = self._wait(again_s)


def sound_addresses(name: str, found: Iterable[str]) -> tuple[str, ...]:
    """Return the texts that are valid addresses, each once and at most MOST_ADDRESSES. Log the others."""
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
    """Do nothing: the default before `watch` is called."""
