"""Addresses of a runtime: those given by the application, and those that resolvers find for names."""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from nnrt_client.resolvers.names import is_name, resolver_for
from nnrt_client.resolvers.resolver import Resolver
from nnrt_client.session import fork
from nnrt_client.session.latch import Changes
from nnrt_client.settings import Settings
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import NnrtError

_log = logging.getLogger(__name__)

# Resolvers of the parent process, which a forked child must not free, because the parent's threads used them.
_left_to_the_parent: list[object] = []


@dataclass(frozen=True, slots=True)
class AddressChange:
    """Change of the addresses of a runtime.

    Attributes:
        added: Addresses that are new.
        removed: Addresses that are no longer there.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]


Listener = Callable[[AddressChange], None]


class Membership(fork.LockOwner, Closable):
    """Addresses of a runtime. Resolvers watch its names from first use until `close`."""

    def __init__(self, given: Iterable[str], settings: Settings) -> None:
        """Create it from addresses and names. Raise InvalidParameter or Unsupported for an invalid name."""
        # Addresses and names, in the order of preference.
        self.given = tuple(dict.fromkeys(given))
        self._settings = settings
        self._names = tuple(text for text in self.given if is_name(text))
        self._is_open = True
        self._is_watching = False
        self._resolvers = self._make_resolvers()
        self._listeners: list[Listener] = []
        # The resolvers' results by name: addresses, or why there are none.
        self._found_addresses: dict[str, tuple[str, ...]] = {}
        self._failures: dict[str, str] = {}
        self._addresses = self._all_addresses()
        super().__init__()

    def _make_locks(self) -> None:
        self._lock = threading.RLock()
        # Locked while listeners are called: one at a time, in the order of the changes.
        self._notifying = threading.RLock()
        self._changes = Changes()
        # Whether all names have been looked up, or the time for that is over.
        self._is_looked_up = not self._names
        if self._is_watching:  # In a forked child, where the resolvers' threads don't exist.
            _left_to_the_parent.append(self._resolvers)
            self._resolvers = self._make_resolvers()
            self._is_watching = False

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses known now.

        The first use waits until all names have been looked up, for at most connect_timeout_s.
        """
        if not self._is_looked_up:
            self._look_up()
        return self._addresses

    def behind(self, given: str) -> tuple[str, ...]:
        """Return the addresses of a name. An address stands for itself."""
        return self._found_addresses.get(given, ()) if given in self._names else (given,)

    def failures(self) -> dict[str, str]:
        """Return the names without an address now, each with the reason."""
        with self._lock:
            empty = [name for name in self._names if not self._found_addresses.get(name)]
            return {name: self._failures.get(name) or self._why_empty(name) for name in empty}

    def _why_empty(self, name: str) -> str:
        return "no address is behind it" + getattr(self._resolvers.get(name), "if_empty", "")

    def watch(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with all addresses known now, and then with each change.

        Returns:
            A function that ends the calls.
        """
        self.addresses  # noqa: B018  (the property starts to watch the names)
        with self._notifying:
            with self._lock:
                self._listeners.append(listener)
                known = self._addresses
            _notify(listener, AddressChange(known, ()))
        return partial(self._forget, listener)

    def close(self) -> None:
        """Stop watching the names. Idempotent."""
        with self._lock:
            self._is_open = False
            self._listeners.clear()
            resolvers, self._resolvers = self._resolvers, {}
        self._changes.announce()
        for resolver in resolvers.values():
            resolver.close()

    def _make_resolvers(self) -> dict[str, Resolver]:
        return {name: resolver_for(name, self._settings) for name in self._names} if self._is_open else {}

    def _look_up(self) -> None:
        with self._lock:
            if not self._is_watching and self._is_open:
                self._is_watching = True
                for name, resolver in self._resolvers.items():
                    resolver.watch(partial(self._take_addresses, name), partial(self._take_failure, name))
        self._changes.wait_for(self._are_all_looked_up, self._settings.connect_timeout_s)
        self._is_looked_up = True

    def _are_all_looked_up(self) -> bool:
        return not self._is_open or all(name in self._found_addresses or name in self._failures for name in self._names)

    def _take_addresses(self, name: str, addresses: tuple[str, ...]) -> None:
        """Record the addresses of a name, and call the listeners. A resolver's thread calls this."""
        with self._notifying:
            with self._lock:
                before = self._addresses
                self._found_addresses[name] = addresses
                self._failures.pop(name, None)
                now = self._addresses = self._all_addresses()
                listeners = list(self._listeners)
            self._changes.announce()
            change = AddressChange(_difference(now, before), _difference(before, now))
            if change.added or change.removed:
                for listener in listeners:
                    _notify(listener, change)

    def _take_failure(self, name: str, error: NnrtError) -> None:
        """Record why a name has no addresses. A resolver's thread calls this."""
        with self._lock:
            self._failures[name] = error.message
        self._changes.announce()

    def _forget(self, listener: Listener) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def _all_addresses(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(address for given in self.given for address in self.behind(given)))


def _difference(addresses: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    known = set(others)
    return tuple(address for address in addresses if address not in known)


def _notify(listener: Listener, change: AddressChange) -> None:
    try:
        listener(change)
    except Exception:
        _log.exception("a listener to addresses failed")
