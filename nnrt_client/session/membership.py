"""Which addresses a runtime has: those that it was given, and those that resolvers find behind names."""

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

# What threads of a parent use, which a child must not even let go of.
_left_to_the_parent: list[object] = []


@dataclass(frozen=True, slots=True)
class AddressChange:
    """Addresses that a runtime has from now on, and those that it had until now."""

    added: tuple[str, ...]
    removed: tuple[str, ...]


Listener = Callable[[AddressChange], None]


class Membership(fork.LockOwner, Closable):
    """The addresses of a runtime. Names are watched from first use until `close`."""

    def __init__(self, given: Iterable[str], settings: Settings) -> None:
        """Raises InvalidParameter and Unsupported for a name that can't be watched."""
        # Addresses and names, in the order in which their devices count.
        self.given = tuple(dict.fromkeys(given))
        self._settings = settings
        self._names = tuple(text for text in self.given if is_name(text))
        self._is_open = True
        self._is_watching = False
        self._resolvers = self._make_resolvers()
        self._listeners: list[Listener] = []
        # What the resolvers have said: addresses, or why there are none.
        self._behind: dict[str, tuple[str, ...]] = {}
        self._failures: dict[str, str] = {}
        self._addresses = self._all()
        super().__init__()

    def _make_locks(self) -> None:
        self._lock = threading.RLock()
        # Listeners are called one after another, in the order of what they hear.
        self._telling = threading.RLock()
        self._changes = Changes()
        # Whether all names have been looked up, or had their time.
        self._is_looked_up = not self._names
        if self._is_watching:  # In a child, where their threads are not.
            _left_to_the_parent.append(self._resolvers)
            self._resolvers = self._make_resolvers()
            self._is_watching = False

    @property
    def addresses(self) -> tuple[str, ...]:
        """Those known now. The first time it waits until each name has been looked up, connect_timeout_s at most."""
        if not self._is_looked_up:
            self._look_up()
        return self._addresses

    def behind(self, given: str) -> tuple[str, ...]:
        """The addresses behind one of those that were given, which may be an address itself."""
        return self._behind.get(given, ()) if given in self._names else (given,)

    def failures(self) -> dict[str, str]:
        """Names without an address now, and why."""
        with self._lock:
            empty = [name for name in self._names if not self._behind.get(name)]
            return {name: self._failures.get(name, "no address is behind it") for name in empty}

    def watch(self, listener: Listener) -> Callable[[], None]:
        """Call this with all addresses known now, and from then on with each change; what is returned ends that."""
        self.addresses  # noqa: B018  (it begins the watch of the names)
        with self._telling:
            with self._lock:
                self._listeners.append(listener)
                known = self._addresses
            _tell(listener, AddressChange(known, ()))
        return partial(self._forget, listener)

    def close(self) -> None:
        """End the watch of the names. Idempotent."""
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
                    resolver.watch(partial(self._found, name), partial(self._failed, name))
        self._changes.wait_for(self._are_all_looked_up, self._settings.connect_timeout_s)
        self._is_looked_up = True

    def _are_all_looked_up(self) -> bool:
        return not self._is_open or all(name in self._behind or name in self._failures for name in self._names)

    def _found(self, name: str, addresses: tuple[str, ...]) -> None:
        """Runs in the thread of a resolver."""
        with self._telling:
            with self._lock:
                before = self._addresses
                self._behind[name] = addresses
                self._failures.pop(name, None)
                now = self._addresses = self._all()
                listeners = list(self._listeners)
            self._changes.announce()
            change = AddressChange(_without(now, before), _without(before, now))
            if change.added or change.removed:
                for listener in listeners:
                    _tell(listener, change)

    def _failed(self, name: str, error: NnrtError) -> None:
        """Runs in the thread of a resolver."""
        with self._lock:
            self._failures[name] = error.message
        self._changes.announce()

    def _forget(self, listener: Listener) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def _all(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(address for given in self.given for address in self.behind(given)))


def _without(addresses: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    known = set(others)
    return tuple(address for address in addresses if address not in known)


def _tell(listener: Listener, change: AddressChange) -> None:
    try:
        listener(change)
    except Exception:
        _log.exception("a listener to addresses failed")
