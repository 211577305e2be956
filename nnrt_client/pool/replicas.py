"""The replicas of a model: where there are some, and which of them makes a run."""

import logging
import math
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Protocol

from nnrt_client.build.build_task import BuildReport
from nnrt_client.pool.backoff import Backoff
from nnrt_client.pool.candidate import Candidate
from nnrt_client.pool.placement import in_order
from nnrt_client.pool.replica import GUESSED_S, Loaded, Replica
from nnrt_client.session.device import Device
from nnrt_client.session.latch import Changes
from nnrt_client.session.release import TRANSPORT_ERRORS
from nnrt_hdi.errors import NnrtError, OperationFailed, OutOfMemory
from nnrt_hdi.tensor import TensorSpec

_log = logging.getLogger(__name__)

# How long the first replicas wait for devices that don't answer, while there are enough that do.
_MUSTER_S = 0.5
# What is left of the latency of a replica each time, if it has not run in between; so it is tried again some time.
_REMEMBERED = 0.9
_FORGET_S = 0.5
# The end of a session waits so long for models that are still being loaded for it.
_END_S = 5.0

# Has a device ready to run the model; calls the function now and then, which raises where nobody wants that any more.
Place = Callable[[Device, Callable[..., None]], Loaded]


class Waiting(Protocol):
    """A run that waits for a replica, in no thread."""

    waits_until: float

    def resume(self) -> None:
        """Go on: there is a replica, or it is time to fail."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many replicas there are to be, and which devices may have them."""

    # None: one on each device.
    replicas: int | None
    # Only devices of one kind, with one backend in one version.
    same_numbers: bool
    # Tells the model from others.
    digest: bytes


class _Refusal:
    """Why a device has no replica, and when it may be asked again."""

    def __init__(self) -> None:
        self.error: NnrtError = OperationFailed("it was not asked")
        self.is_final = False
        self._instance = b""
        self._backoff = Backoff()

    @property
    def due(self) -> float:
        """When it may be asked again."""
        return math.inf if self.is_final else self._backoff.due

    def note(self, error: NnrtError, candidate: Candidate, now: float) -> bool:
        """Enter one more; true where it holds until the daemon is another one."""
        self.error, self._instance = error, candidate.instance
        # It may have no memory now, and some later.
        self.is_final = not isinstance(error, (*TRANSPORT_ERRORS, OutOfMemory))
        self._backoff.failed(now)
        return self.is_final

    def holds(self, candidate: Candidate, now: float) -> bool:
        """Tell if the device need not be asked again."""
        return candidate.instance == self._instance and now < self.due


class Replicas:
    """The replicas of one model. What comes and goes is decided in the pool's thread, by `look`; any thread chooses.

    A thread that chooses takes no lock, and looks at each replica that there is.
    """

    def __init__(
        self,
        place: Place,
        wanted: Wanted,
        wake: Callable[[], None],
        call_back: Callable[..., object],
    ) -> None:
        """`wake` has the pool's thread look soon, `call_back` has a thread for callbacks call something."""
        self.wake = wake
        self._call_back = call_back
        self._place = place
        self._wanted = wanted
        self._began = time.monotonic()
        self._all: list[Replica] = []
        # Those that get runs, twice in a row: from any of the first ones on, all come once.
        self._ring: tuple[Replica, ...] = ()
        self._turns = count()
        self._leaving: list[Replica] = []
        self._loading: set[Candidate] = set()
        self._loaded: queue.SimpleQueue[tuple[Candidate, Loaded | NnrtError]] = queue.SimpleQueue()
        self._refusals: dict[str, _Refusal] = {}
        self._waiting: deque[Waiting] = deque()
        self._forgets_at = 0.0
        # The backend, its version and the kind of device of all replicas, where they must be the same.
        self.numbers: tuple[object, ...] | None = None
        # Inputs and outputs of the model, once one device has it.
        self.specs: tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]] | None = None
        self.changes = Changes()
        self.is_open = True
        # Why it isn't.
        self.end_reason: NnrtError | None = None
        # Whether there are as many as there are to be, or no device that could have another one now.
        self.is_settled = False

    # ---- for runs

    def choose(self) -> Replica | None:
        """The replica that is likely to make a run the soonest; None where there is none that gets runs."""
        ring = self._ring
        many = len(ring) >> 1
        if many == 1:
            return None if ring[0].is_out else ring[0]
        if not many:
            return None
        chosen, least = None, math.inf
        first = next(self._turns) % many
        for replica in ring[first : first + many]:
            cost = (len(replica.under_way) + 1) * replica.latency_s
            if cost < least and not replica.is_out:
                chosen, least = replica, cost
        return chosen

    def choose_another(self, tried: Iterable[Replica]) -> Replica | None:
        """One that has not been tried, if there is one; else as `choose`."""
        others = [one for one in self.serving if one not in tried and not one.is_out]
        return min(others, key=lambda one: (len(one.under_way) + 1) * one.latency_s, default=None) or self.choose()

    def ran(self, replica: Replica, seconds: float) -> None:
        """Count a run. The first one tells what to expect of the others."""
        if not replica.runs:
            for other in self._all:
                if not other.runs:
                    other.latency_s = seconds
        replica.ran(seconds)

    def failed(self, replica: Replica) -> None:
        """Have a replica get no runs for now, whose device failed one."""
        replica.failed()
        self.wake()

    def wait(self, timeout_s: float) -> bool:
        """Wait for a replica that gets runs, so long at most. False where there is none."""
        return self.changes.wait_for(lambda: self.choose() is not None or not self.is_open, timeout_s)

    def wait_settled(self) -> None:
        """Wait until there are as many as there are to be, or no device could have another one now."""
        self.changes.wait_for(lambda: self.is_settled or not self.is_open)

    def park(self, run: Waiting) -> None:
        """Have a run go on when there is a replica, or when its time is over."""
        self._waiting.append(run)
        self.wake()

    # ---- what there is

    @property
    def serving(self) -> tuple[Replica, ...]:
        """Those that get runs."""
        ring = self._ring
        return ring[: len(ring) >> 1]

    @property
    def everywhere(self) -> list[Replica]:
        """Those that there are, and those that still make runs though they get no more."""
        return [*self._all, *self._leaving]

    @property
    def reports(self) -> dict[str, BuildReport]:
        """How each device got the model, by address."""
        return {replica.candidate.address: replica.loaded.report for replica in self._all}

    def is_loading_on(self, candidate: Candidate) -> bool:
        """Tell if a device is being given the model."""
        return candidate in self._loading

    def refusal_of(self, candidate: Candidate) -> NnrtError | None:
        """Why a device didn't take the model when it was last asked to."""
        refusal = self._refusals.get(candidate.address)
        return None if refusal is None else refusal.error

    def reasons(self, candidates: Iterable[Candidate]) -> dict[str, NnrtError]:
        """Why devices have no replica, by address."""
        reasons: dict[str, NnrtError] = {}
        there = {replica.candidate for replica in self._all}
        for candidate in candidates:
            if candidate in there:
                continue
            refusal = self.refusal_of(candidate)
            if refusal is not None and candidate.is_up:
                reasons[candidate.address] = refusal
            elif not candidate.is_up:
                reasons[candidate.address] = OperationFailed(candidate.why or "it doesn't take work now")
        return reasons

    def has(self, candidate: Candidate) -> bool:
        """Tell if a device has a replica, or is about to."""
        return self.is_loading_on(candidate) or any(one.candidate is candidate for one in self.everywhere)

    # ---- the end

    def end(self, reason: NnrtError) -> None:
        """Have no run begin any more; those that wait end with the reason."""
        self.end_reason, self.is_open = reason, False
        self.changes.announce()
        while self._waiting:
            with suppress(IndexError):  # Another thread does the same.
                self._waiting.popleft().resume()

    def enter_child(self, reason: NnrtError) -> None:
        """End after a fork, whoever held locks before."""
        self.changes = Changes()
        self.end_reason, self.is_open = reason, False

    def close(self) -> None:
        """End the runs that are under way, and free the model everywhere. Idempotent."""
        if self.is_open:
            self.end(OperationFailed("the session was closed"))
        for replica in self.everywhere:
            replica.loaded.close()
        self.changes.wait_for(lambda: not self._loading, _END_S)

    # ---- in the pool's thread

    def look(self, candidates: Sequence[Candidate], now: float) -> float:
        """Bring replicas to where they should be; give when to look again, if nothing happens before."""
        self._take_loaded(now)
        for replica in list(self._all):
            self._look_at(replica)
        self._forget(now)
        self._close_left()
        due = self._load_more([candidate for candidate in candidates if candidate.is_listed], now)
        ring = tuple(replica for replica in self._all if not replica.is_out)
        self._ring = ring + ring
        self.changes.announce()
        return min(due, self._resume_waiting(now))

    def _take_loaded(self, now: float) -> None:
        """Enter what came of the replicas that were being made."""
        while not self._loaded.empty():
            candidate, loaded = self._loaded.get()
            if isinstance(loaded, NnrtError):
                self._refused(candidate, loaded, now)
            elif (odd := self._why_odd(loaded)) is not None:
                self._start(loaded.close, f"close {candidate.address}")
                self._refused(candidate, odd, now)
            else:
                self._refusals.pop(candidate.address, None)
                known = [replica.latency_s for replica in self._all if replica.runs]
                self._all.append(Replica(candidate, loaded, min(known, default=GUESSED_S)))
                _log.info("a replica is ready on %s", loaded.device)
                if not self.is_open:  # `close` may have looked before.
                    loaded.close()
            self._loading.discard(candidate)

    def _refused(self, candidate: Candidate, error: NnrtError, now: float) -> None:
        refusal = self._refusals.setdefault(candidate.address, _Refusal())
        if refusal.note(error, candidate, now):
            _log.warning("no replica at %s: %s", candidate.address, error)
        else:
            _log.debug("no replica at %s yet: %s", candidate.address, error)
            candidate.doubt()

    def _why_odd(self, loaded: Loaded) -> NnrtError | None:
        """Say why a model is none of these replicas, though it was made of the same file."""
        signature = loaded._executor._signature
        specs = signature.inputs, signature.outputs
        if self.specs is None:
            self.specs = specs
        if specs == self.specs:
            return None
        return OperationFailed(f"the model has inputs and outputs {specs} there; on other devices {self.specs}")

    def _look_at(self, replica: Replica) -> None:
        candidate = replica.candidate
        if not replica.executor._is_living:
            self._leave(replica, "its daemon died")
        elif not candidate.is_listed:
            self._leave(replica, "its address is gone")
        elif candidate.is_up:
            replica.is_out = False
        elif candidate.takes_work is not None:
            self._leave(replica, "its daemon is shutting down" if candidate.is_draining else candidate.why)
        else:
            replica.is_out = True

    def _leave(self, replica: Replica, why: str) -> None:
        _log.info("no replica on %s any more: %s", replica.loaded.device, why)
        replica.is_out = True
        self._all.remove(replica)
        self._leaving.append(replica)

    def _forget(self, now: float) -> None:
        """Have replicas that were slow be tried again some time."""
        if now < self._forgets_at:
            return
        self._forgets_at = now + _FORGET_S
        for replica in self._all:
            if replica.runs == replica.seen_runs:
                replica.latency_s *= _REMEMBERED
            replica.seen_runs = replica.runs

    def _close_left(self) -> None:
        """Free replicas that get no more runs, and have none."""
        for replica in list(self._leaving):
            if not replica.under_way or not replica.executor._is_living:
                self._leaving.remove(replica)
                replica.is_left = True
                replica.candidate.past_runs += replica.runs
                replica.candidate.past_failures += replica.failures
                self._start(replica.loaded.close, f"close {replica.candidate.address}")

    def _load_more(self, listed: Sequence[Candidate], now: float) -> float:
        """Begin to load where a replica is missing; give when to look again."""
        there = {replica.candidate for replica in self._all} | self._loading
        missing = (self._wanted.replicas or len(listed)) - len(there)
        possible = [one for one in listed if one.is_up and one not in there]
        unknown = [one for one in listed if one.takes_work is None and one not in there]
        if unknown and self._musters and (len(possible) < missing or now < self._began + _MUSTER_S):
            return self._began + _MUSTER_S
        due, instances = math.inf, {candidate.instance for candidate in there}
        if missing < len(possible):
            possible = in_order(possible, self._wanted.digest)
        for candidate in self._fitting(possible):
            refusal = self._refusals.get(candidate.address)
            if missing <= 0 or candidate.instance in instances:
                continue
            if refusal is not None and refusal.holds(candidate, now):
                due = min(due, refusal.due)
                continue
            missing -= 1
            instances.add(candidate.instance)
            self._loading.add(candidate)
            try:
                self._start(partial(self._load, candidate), f"load {candidate.address}")
            except RuntimeError as error:  # The process has no thread left.
                self._loaded.put((candidate, OutOfMemory(f"it could not be loaded: {error}")))
        self.is_settled = self.is_settled or (missing <= 0 and not self._loading) or not (self._loading or unknown)
        return due

    @property
    def _musters(self) -> bool:
        """True where it matters which devices are there before the first gets the model."""
        return not self._all and not self._loading and (self._wanted.same_numbers or self._wanted.replicas is not None)

    def _fitting(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Those that give the same numbers as the first ones, where that is wanted."""
        if not self._wanted.same_numbers:
            return candidates
        if self.numbers is None and candidates:
            ((self.numbers, _),) = Counter(map(numbers_of, candidates)).most_common(1)
        return [candidate for candidate in candidates if numbers_of(candidate) == self.numbers]

    def _resume_waiting(self, now: float) -> float:
        """Have runs go on that wait, where they can or their time is over; give when the next one's is."""
        due, has_replica = math.inf, self.choose() is not None
        for _ in range(len(self._waiting)):
            run = self._waiting.popleft()
            if has_replica or run.waits_until <= now:
                self._call_back(run.resume)
            else:
                due = min(due, run.waits_until)
                self._waiting.append(run)
        return due

    # ---- in threads of their own

    def _load(self, candidate: Candidate) -> None:
        """Have a device ready to run the model, unless the session is closed meanwhile."""
        device = candidate.device
        assert device is not None
        try:
            loaded: Loaded | NnrtError = self._place(device, self._check_open)
        except NnrtError as error:
            loaded = error
        except Exception as error:
            _log.exception("no replica at %s", candidate.address)
            loaded = OperationFailed(f"it could not be loaded: {error!r}")
        self._loaded.put((candidate, loaded))
        if not self.is_open:
            self._close_loaded()
        self.wake()

    def _close_loaded(self) -> None:
        """Free what nobody waits for any more."""
        while not self._loaded.empty():
            with suppress(queue.Empty):
                candidate, loaded = self._loaded.get_nowait()
                if not isinstance(loaded, NnrtError):
                    loaded.close()
                self._loading.discard(candidate)
        self.changes.announce()

    def _check_open(self, *_: object) -> None:
        """Raise OperationFailed where nobody wants the model any more, which ends its build."""
        if not self.is_open:
            raise OperationFailed("the session was closed")

    def _start(self, work: Callable[[], object], what: str) -> None:
        threading.Thread(target=work, name=f"nnrt-pool-{what}", daemon=True).start()


def numbers_of(candidate: Candidate) -> tuple[object, ...]:
    """What decides which numbers come out of a model: backend, its version, and the kind of device."""
    assert candidate.device is not None
    info = candidate.device.info
    return info.backend_name, info.backend_version, info.device_type
