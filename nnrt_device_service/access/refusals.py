"""Refusals by their sources. Beyond a rate they are counted instead of audited, and answered late to strangers."""

import threading
import time
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
# Each holds a thread.
_MOST_DELAYED = 256


@dataclass(slots=True)
class _Source:
    """What is remembered of a source: the refusals that may be audited now, as of a time, and those counted since the
    last summary; how many of its refusals are being delayed."""

    may_audit: float = BURST
    as_of: float = 0.0
    counted: int = 0
    delayed: int = 0

    def refill(self, now: float) -> None:
        self.may_audit = min(self.may_audit + (now - self.as_of) / _INTERVAL_S, BURST)
        self.as_of = now

    @property
    def is_idle(self) -> bool:
        return self.may_audit >= BURST and not self.counted and not self.delayed


class Refusals:
    """Audits refusals, each source at a bounded rate. A source is an identity, or the host of a stranger."""

    def __init__(self, audit: AuditLog, most_delayed: int) -> None:
        """`most_delayed` bounds the refusals of one source that are delayed at a time."""
        self._audit = audit
        self._most_delayed = most_delayed
        self._lock = threading.Lock()
        self._sources: dict[str, _Source] = {}
        self._delayed = 0
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

    def delay(self, source: str, is_over: threading.Event) -> None:
        """Wait before a stranger is told of a refusal, unless too many wait, or the call is over."""
        with self._lock:
            known = self._source(source)
            if known.delayed >= self._most_delayed or self._delayed >= _MOST_DELAYED:
                return
            known.delayed += 1
            self._delayed += 1
        try:
            is_over.wait(DELAY_S)
        finally:
            with self._lock:
                known.delayed -= 1
                self._delayed -= 1

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
