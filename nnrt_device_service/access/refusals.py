"""Refusals by their sources. Beyond a rate they are counted instead of audited, and answered late to strangers, of whom
few are looked at meanwhile."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nnrt_device_service.access.audit import AuditLog
from nnrt_device_service.access.identity import Identity

# Refusals of one source that are audited at once; one more is in each interval.
BURST = 10
_INTERVAL_S = 10.0
# Between two lines that say how many were only counted.
_SUMMARY_S = 60.0
# All sources that come while so many are remembered count as one.
MOST_SOURCES = 256
OTHERS = "others"
# The wait of a stranger for a refusal that is only counted.
DELAY_S = 1.0
# Each holds a thread. One source may take a part of them.
_MOST_PLACES, _MOST_OF_A_SOURCE = 256, 64
# Strangers of a source that are still looked at in a second, when all its places are taken.
RESERVE = 4


@dataclass(slots=True)
class _Source:
    """What is remembered of a source: the refusals that may be audited now, and the strangers that may be looked at
    without a place, as of a time; the refusals counted since the last summary; how many places are taken."""

    may_audit: float = BURST
    may_look: float = RESERVE
    as_of: float = 0.0
    counted: int = 0
    places: int = 0

    def refill(self, now: float) -> None:
        self.may_audit = min(self.may_audit + (now - self.as_of) / _INTERVAL_S, BURST)
        self.may_look = min(self.may_look + (now - self.as_of) * RESERVE, RESERVE)
        self.as_of = now

    @property
    def is_idle(self) -> bool:
        return self.may_audit >= BURST and not self.counted and not self.places


class Refusals:
    """Audits refusals, each source at a bounded rate. A source is an identity, or the host of a stranger."""

    def __init__(self, audit: AuditLog, most_places: int) -> None:
        """`most_places` bounds the strangers of one source that have places at a time."""
        self._audit = audit
        self._most_places = max(1, min(most_places, _MOST_OF_A_SOURCE))
        self._lock = threading.Lock()
        self._sources: dict[str, _Source] = {}
        self._places = 0
        self._told_at = time.monotonic()

    def __len__(self) -> int:
        return len(self._sources)

    def audit(self, source: str, identity: Identity | None, **about: object) -> bool:
        """Audit a refusal, or only count it; return whether it was audited."""
        now = time.monotonic()
        with self._lock:
            known = self._source(source)
            known.refill(now)
            if known.may_audit < 1:
                known.counted += 1
                return False
            known.may_audit -= 1
        self._audit.write("refused", identity, **about)
        return True

    @contextmanager
    def place(self, source: str) -> Iterator[bool]:
        """Take a place for a caller, in which it waits for its refusal if it is a stranger; whether it has one."""
        with self._lock:
            known = self._source(source)
            has_place = known.places < self._most_places and self._places < _MOST_PLACES
            known.places += has_place
            self._places += has_place
        try:
            yield has_place
        finally:
            with self._lock:
                known.places -= has_place
                self._places -= has_place

    def may_look(self, source: str) -> bool:
        """Tell whether the token of a caller without a place may be looked at: who is told more often than that
        guesses as fast as he likes."""
        with self._lock:
            known = self._source(source)
            known.refill(time.monotonic())
            may_look = known.may_look >= 1
            known.may_look -= may_look
        return may_look

    def summarize(self, is_last: bool = False) -> None:
        """Audit, once a minute or because it `is_last`, how many refusals were only counted. Forget idle sources."""
        now = time.monotonic()
        passed_s = now - self._told_at
        if passed_s < _SUMMARY_S and not is_last:
            return
        self._told_at = now
        with self._lock:
            counts = {source: known.counted for source, known in self._sources.items() if known.counted}
            for source, known in list(self._sources.items()):
                known.counted = 0
                known.refill(now)
                if known.is_idle:
                    del self._sources[source]
        for source, count in counts.items():
            self._audit.write("refusals counted", None, source=source, count=count, seconds=round(passed_s, 3))

    def _source(self, source: str) -> _Source:
        if source not in self._sources and len(self._sources) >= MOST_SOURCES:
            source = OTHERS
        return self._sources.setdefault(source, _Source(as_of=time.monotonic()))
