"""Live view of `nnrt devices --watch`, which shows devices that appear, disappear or change."""

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from nnrt_client.cli.discovery import found_by
from nnrt_client.cli.printing import live_table, print_json_line, print_line
from nnrt_client.session.device import Device
from nnrt_client.session.membership import AddressChange
from nnrt_client.session.runtime import Look, Runtime
from nnrt_hdi.closable import Closable

# Interval at which each device is asked and the table is drawn again.
_EVERY_S = 0.5
_COLUMNS = ("name", "status", "load", "address", "found by", "why it takes no work")

_NOT_LOOKED = Look(None, None)

Load = Callable[[Device], str]


@dataclass(frozen=True, slots=True)
class Event:
    """Change of one address, or of the device there.

    Its `kind` is `added` (the address is known now), `removed` (it isn't known any more) or `status` (the status of its
    device, or the reason why it takes no work, has changed).
    """

    kind: str
    address: str
    found_by: tuple[str, ...]
    look: Look = _NOT_LOOKED

    @property
    def name(self) -> str | None:
        return self.look.device.name if self.look.device else None

    @property
    def status(self) -> str | None:
        return None if self.look.status is None else self.look.status.name

    def describe(self) -> dict[str, Any]:
        return {
            "event": self.kind,
            "time": time.time(),
            "address": self.address,
            "name": self.name,
            "status": self.status,
            "why": self.look.why,
            "found_by": self.found_by,
        }

    def line(self) -> str:
        why = f": {self.look.why}" if self.look.why else ""
        return f"{self.kind:<7}  {self.address}  {self.name or '-'}  {self.status or '-'}{why}"

    def row(self, load: Load) -> tuple[str, ...]:
        device = self.look.device
        shown_load = load(device) if device and self.status else "-"
        found = ", ".join(self.found_by)
        return self.name or "-", self.status or "-", shown_load, self.address, found, self.look.why


class _Follower:
    """Thread that polls the daemon at one address until `stop`."""

    def __init__(self, runtime: Runtime, added: Event, tell: Callable[[Event], None]) -> None:
        self._runtime, self._tell = runtime, tell
        self.latest = added
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name=f"nnrt-follow {added.address}", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(_EVERY_S if self.latest.kind == "status" else 0):
            before, look = self.latest.look, self._runtime._look(self.latest.address)
            if self.latest.kind == "added" or (look.status, look.why) != (before.status, before.why):
                self.latest = replace(self.latest, kind="status", look=look)
                self._tell(self.latest)


class DeviceWatch(Closable):
    """Watch of the addresses that a runtime knows, and of their devices."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._news: queue.SimpleQueue[AddressChange | Event] = queue.SimpleQueue()
        self._followers: dict[str, _Follower] = {}
        self._end = runtime.watch(self._news.put)

    def close(self) -> None:
        """Stop watching. Idempotent."""
        self._end()
        for follower in self._followers.values():
            follower.stop()

    @property
    def known(self) -> list[Event]:
        """Latest event of each address."""
        return [follower.latest for follower in self._followers.values()]

    def events(self) -> Iterator[Event]:
        """Wait up to _EVERY_S for news, and yield its events."""
        try:
            news = self._news.get(timeout=_EVERY_S)
        except queue.Empty:
            return
        if isinstance(news, Event):
            if news.address in self._followers:
                yield news
            return
        yield from self._without(news.removed)
        yield from self._with(news.added)

    def _without(self, addresses: Iterable[str]) -> Iterator[Event]:
        for address in addresses:
            follower = self._followers.pop(address)
            follower.stop()
            yield replace(follower.latest, kind="removed")

    def _with(self, addresses: Iterable[str]) -> Iterator[Event]:
        for address in addresses:
            event = Event("added", address, found_by(self._runtime, address))
            self._followers[address] = _Follower(self._runtime, event, self._news.put)
            yield event


def show_changes(runtime: Runtime, load: Load, *, as_json: bool) -> None:
    """Show changes until the user interrupts: as a live table on a terminal, otherwise as one line per event."""
    with DeviceWatch(runtime) as watch:
        if sys.stdout.isatty() and not as_json:
            with live_table(_COLUMNS) as draw:
                while True:
                    list(watch.events())
                    draw([event.row(load) for event in watch.known])
        while True:
            for event in watch.events():
                print_json_line(event.describe()) if as_json else print_line(event.line())
