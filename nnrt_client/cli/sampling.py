"""Periodic samples of daemons' states and counters."""

import queue
import threading
import time
from dataclasses import dataclass, field

from nnrt_client.session.membership import AddressChange
from nnrt_client.session.runtime import Look, Runtime
from nnrt_hdi.backend import DeviceState
from nnrt_hdi.closable import Closable
from nnrt_hdi.counters import DeviceCounters
from nnrt_hdi.errors import NnrtError, Unsupported


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of the daemon at an address: its state, and its counters if it reports any."""

    look: Look
    state: DeviceState = field(default_factory=DeviceState)
    # Random number that a daemon chooses at its start, when its counters are 0.
    instance_id: bytes = b""
    counters: DeviceCounters | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Latest answer at an address, and the counters of the same daemon instance one sample earlier.

    `silent_s` is how long the current question has waited for an answer.
    """

    address: str
    answer: Answer | None
    before: DeviceCounters | None
    silent_s: float


class _Follower:
    """Thread that asks the daemon at an address every `every_s` seconds until `stop`."""

    def __init__(self, runtime: Runtime, address: str, every_s: float, changed: "queue.SimpleQueue[object]") -> None:
        self._runtime, self._address, self._every_s, self._changed = runtime, address, every_s, changed
        self._latest: tuple[Answer | None, DeviceCounters | None] = None, None
        self._asked_at: float | None = None
        self.rounds = 0
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name=f"nnrt-sample {address}", daemon=True).start()

    @property
    def sample(self) -> Sample:
        asked_at = self._asked_at
        silent_s = 0.0 if asked_at is None else time.monotonic() - asked_at
        return Sample(self._address, *self._latest, silent_s)

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        counted = Answer(Look(None, None))
        while not self._stopped.is_set():
            self._asked_at = time.monotonic()
            answer = self._ask()
            self._asked_at = None
            self._latest = answer, counted.counters if counted.instance_id == answer.instance_id else None
            if answer.counters is not None:
                counted = answer
            self.rounds += 1
            self._changed.put(None)
            self._stopped.wait(self._every_s)

    def _ask(self) -> Answer:
        look = self._runtime._look(self._address)
        if look.device is None or look.status is None:
            return Answer(look)
        device = look.device
        try:
            counters = device.counters()
        except Unsupported:  # An older daemon.
            counters = None
        except NnrtError as error:  # The daemon has died meanwhile.
            return Answer(Look(device, None, error))
        # The daemon may have restarted meanwhile, so this takes the id of the instance that answered.
        return Answer(look, device.state, device._latest.welcome.instance_id, counters)


class Sampler(Closable):
    """Sampler of all addresses of a runtime as they come and go; each address has a thread of its own."""

    def __init__(self, runtime: Runtime, every_s: float) -> None:
        self._runtime, self._every_s = runtime, every_s
        self._changed: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._followers: dict[str, _Follower] = {}
        self._end = runtime.watch(self._follow)

    def close(self) -> None:
        """Stop sampling. Idempotent."""
        self._end()
        for follower in list(self._followers.values()):
            follower.stop()

    @property
    def samples(self) -> list[Sample]:
        """Latest sample of each address, in the order of the addresses."""
        followers = dict(self._followers)
        return [followers[address].sample for address in self._runtime.addresses if address in followers]

    @property
    def failures(self) -> dict[str, str]:
        """Names that lead to no address now, with the reasons."""
        return self._runtime._members.failures()

    def wait_rounds(self, rounds: int, timeout_s: float) -> None:
        """Wait until every daemon has answered or failed `rounds` times, for at most `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while any(follower.rounds < rounds for follower in list(self._followers.values())):
            try:
                self._changed.get(timeout=max(deadline - time.monotonic(), 0.0))
            except queue.Empty:
                return

    def _follow(self, change: AddressChange) -> None:
        for address in change.removed:
            self._followers.pop(address).stop()
        for address in change.added:
            self._followers[address] = _Follower(self._runtime, address, self._every_s, self._changed)
