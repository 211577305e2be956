"""Loads of a model: they choose devices, load the model there, and record refusals."""

import logging
import math
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from nnrt_client.pool.backoff import Backoff
from nnrt_client.pool.candidate import Candidate
from nnrt_client.pool.placement import order_by_preference
from nnrt_client.pool.replica import Loaded
from nnrt_client.session.device import Device
from nnrt_client.session.latch import Changes
from nnrt_client.session.release import TRANSPORT_ERRORS
from nnrt_hdi.errors import NnrtError, OperationFailed, OutOfMemory
from nnrt_hdi.tensor import TensorSpec

_log = logging.getLogger(__name__)

# Seconds that a pool waits for slow daemons before it chooses devices for the first replicas.
_GATHER_S = 0.5
# Seconds that the end of a session waits for models that are still being loaded for it.
_END_S = 5.0

# Loads the model on a device. It calls the given function repeatedly, which raises if the model is not wanted any more.
Place = Callable[[Device, Callable[[], None]], Loaded]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Wanted number of replicas, and requirements on their devices."""

    # None: one on each device.
    replicas: int | None
    # Whether all replicas must compute the same numbers: on one kind of device, by one version of one backend.
    same_numbers: bool
    # Returns the digest of the model, which may have to be read; needed where devices are chosen.
    digest: Callable[[], bytes]


class _Refusal:
    """Refusal of a device to load the model: the reason, and when to ask again."""

    def __init__(self) -> None:
        self.error: NnrtError = OperationFailed("it was not asked")
        self._is_final = False
        self._instance = b""
        self._backoff = Backoff()

    @property
    def due(self) -> float:
        """Time at which to ask again."""
        return math.inf if self._is_final else self._backoff.due

    def note(self, error: NnrtError, candidate: Candidate, now: float) -> bool:
        """Record a refusal. Return whether it is final until the daemon is restarted."""
        self.error, self._instance = error, candidate.instance
        # OutOfMemory is not final, because the device may have memory later.
        self._is_final = not isinstance(error, (*TRANSPORT_ERRORS, OutOfMemory))
        self._backoff.record_failure(now)
        return self._is_final

    def holds(self, candidate: Candidate, now: float) -> bool:
        """Return whether the refusal is still valid, so that the device must not be asked now."""
        return candidate.instance == self._instance and now < self.due


class Loads:
    """Loads of a model, each on one device in a thread of its own, until there are as many replicas as wanted."""

    def __init__(self, place: Place, wanted: Wanted, wake: Callable[[], None]) -> None:
        """Create it. `place` loads the model on a device; `wake` makes the loop check the pool soon."""
        self._place = place
        self._wanted = wanted
        self._wake = wake
        self._began = time.monotonic()
        self._under_way: set[Candidate] = set()
        self._ended: queue.SimpleQueue[tuple[Candidate, Loaded | NnrtError]] = queue.SimpleQueue()
        self._refusals: dict[str, _Refusal] = {}
        self._changes = Changes()
        self._is_open = True
        # Backend, version and kind of device of all replicas, if they must be the same.
        self._numbers: tuple[object, ...] | None = None
        # Inputs and outputs of the model, known after the first load.
        self._specs: tuple[Sequence[TensorSpec], Sequence[TensorSpec]] | None = None
        # Whether there are as many replicas as wanted, or no device could take another one now.
        self.is_settled = False

    @property
    def replicas(self) -> int | None:
        """The wanted number of replicas; None: one on each device."""
        return self._wanted.replicas

    def resize(self, replicas: int | None) -> None:
        """Change the wanted number of replicas. Raises NnrtError if the model can't be read."""
        wanted = replace(self._wanted, replicas=replicas)
        if replicas is not None:
            wanted.digest()  # Here, because the loop must not wait for a file.
        self._wanted, self.is_settled = wanted, False

    def is_loading(self, candidate: Candidate) -> bool:
        """Return whether a device is loading the model."""
        return candidate in self._under_way

    def refusal_of(self, candidate: Candidate) -> NnrtError | None:
        """Return the error with which a device last refused the model, or None."""
        refusal = self._refusals.get(candidate.address)
        return None if refusal is None else refusal.error

    def close(self) -> None:
        """Stop loading, free models that were loaded but not returned, and wait a while for loads under way."""
        self._is_open = False
        # Drop the former functions, which keep the model with its weights alive.
        self._place, self._wanted = _place_no_more, replace(self._wanted, digest=bytes)
        self._drop_ended()
        self._changes.wait_for(lambda: not self._under_way, _END_S)

    # ---- in the loop

    def take_loaded(self, now: float) -> list[tuple[Candidate, Loaded]]:
        """Return the loads that have succeeded since the last call, and record the refusals."""
        arrived = []
        while not self._ended.empty():
            with suppress(queue.Empty):
                candidate, loaded = self._ended.get_nowait()
                self._under_way.discard(candidate)
                if (error := self._find_error(loaded)) is not None:
                    self._refused(candidate, error, now)
                elif not isinstance(loaded, NnrtError):
                    self._refusals.pop(candidate.address, None)
                    arrived.append((candidate, loaded))
        return arrived

    def begin(self, listed: Sequence[Candidate], there: Iterable[Candidate], now: float) -> float:
        """Start loads for missing replicas, and return when to call this again.

        Args:
            listed: All daemons whose addresses are listed.
            there: Those that have a replica.
            now: The present time (time.monotonic()).
        """
        taken = {*there, *self._under_way}
        missing = (self._wanted.replicas or len(listed)) - len(taken)
        possible = [one for one in listed if one.is_up and one not in taken]
        unknown = [one for one in listed if one.takes_work is None and one not in taken]
        is_choice = self._wanted.same_numbers or self._wanted.replicas is not None
        if unknown and is_choice and not taken and (len(possible) < missing or now < self._began + _GATHER_S):
            return self._began + _GATHER_S
        if missing < len(possible):
            possible = order_by_preference(possible, self._digest())
        due, instances = math.inf, {candidate.instance for candidate in taken}
        for candidate in self._of_same_numbers(possible):
            refusal = self._refusals.get(candidate.address)
            if missing <= 0 or candidate.instance in instances:
                continue
            if refusal is not None and refusal.holds(candidate, now):
                due = min(due, refusal.due)
                continue
            missing -= 1
            instances.add(candidate.instance)
            self._begin(candidate)
        if not self._under_way and (missing <= 0 or not unknown):
            self.is_settled = True
        return due

    def _digest(self) -> bytes:
        return b"" if self._wanted.replicas is None else self._wanted.digest()

    def _of_same_numbers(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates that compute the same numbers, if that is wanted, else all.

        The first call decides for the backend, version and kind that most candidates have.
        """
        if not self._wanted.same_numbers:
            return candidates
        if self._numbers is None and candidates:
            ((self._numbers, _),) = Counter(map(_numbers_of, candidates)).most_common(1)
        return [candidate for candidate in candidates if _numbers_of(candidate) == self._numbers]

    def _find_error(self, loaded: Loaded | NnrtError) -> NnrtError | None:
        """Return the error of a load, also of one whose inputs or outputs differ from other devices', or None."""
        if isinstance(loaded, NnrtError):
            return loaded
        signature = loaded._executor._dispatcher.signature
        specs = signature.inputs, signature.outputs
        self._specs = self._specs or specs
        if specs == self._specs:
            return None
        _start(loaded.close, "close")
        return OperationFailed(f"the model has inputs and outputs {specs} there; on other devices {self._specs}")

    def _refused(self, candidate: Candidate, error: NnrtError, now: float) -> None:
        refusal = self._refusals.setdefault(candidate.address, _Refusal())
        if refusal.note(error, candidate, now):
            _log.warning("no replica at %s: %s", candidate.address, error)
        else:
            _log.debug("no replica at %s yet: %s", candidate.address, error)
            candidate.doubt()

    def _begin(self, candidate: Candidate) -> None:
        self._under_way.add(candidate)
        try:
            _start(partial(self._load, candidate), f"load {candidate.address}")
        except RuntimeError as error:  # No thread is left.
            self._ended.put((candidate, OutOfMemory(f"it could not be loaded: {error}")))

    # ---- in threads of their own

    def _load(self, candidate: Candidate) -> None:
        assert candidate.device is not None
        try:
            loaded: Loaded | NnrtError = self._place(candidate.device, self._require_wanted)
        except NnrtError as error:
            loaded = error
        except Exception as error:
            _log.exception("no replica at %s", candidate.address)
            loaded = OperationFailed(f"it could not be loaded: {error!r}")
        self._ended.put((candidate, loaded))
        if not self._is_open:
            self._drop_ended()
        self._wake()

    def _require_wanted(self) -> None:
        if not self._is_open:
            raise OperationFailed("the session was closed")

    def _drop_ended(self) -> None:
        while not self._ended.empty():
            with suppress(queue.Empty):
                candidate, loaded = self._ended.get_nowait()
                if not isinstance(loaded, NnrtError):
                    loaded.close()
                self._under_way.discard(candidate)
        self._changes.announce()


def _numbers_of(candidate: Candidate) -> tuple[object, ...]:
    """Return the facts on which a model's numbers depend: backend, version, and kind of device."""
    assert candidate.device is not None
    info = candidate.device.info
    return info.backend_name, info.backend_version, info.device_type


def _place_no_more(device: Device, require_wanted: Callable[[], None]) -> Loaded:
    raise OperationFailed("the session was closed")


def _start(work: Callable[[], object], what: str) -> None:
    threading.Thread(target=work, name=f"nnrt-pool-{what}", daemon=True).start()
