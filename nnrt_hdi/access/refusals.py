"""Rate limits for refusals, by source.

Refusals beyond a rate are counted instead of audited. Unknown clients get these with a delay, and few of their tokens
are checked meanwhile.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nnrt_hdi.access.audit import AuditLog
from nnrt_hdi.access.identity import Identity

# Refusals of one source that may be audited in a burst; each interval adds one.
BURST = 10
_INTERVAL_S = 10.0
# Seconds between two audit lines with the numbers of refusals that were only counted.
_SUMMARY_S = 60.0
# Known sources at most. New ones beyond count together, as OTHERS.
MOST_SOURCES = 256
OTHERS = "others"
# Delay of a refusal that is only counted, for an unknown client.
DELAY_S = 1.0
# Callers that may wait at a time, in all and of one source. Each occupies a thread.
_MOST_WAITING, _MOST_OF_A_SOURCE = 256, 64
# Callers of one source per second whose tokens are still checked when no more of them may wait.
RESERVE = 4


@dataclass(slots=True)
class _Source:
    """State of one source.

    Attributes:
        may_audit: Refusals that may be audited now.
        may_check: Callers beyond the waiting limit whose tokens may be checked now.
        refilled_at: Time at which both were computed last.
        counted: Refusals only counted since the last summary.
        waiting: Callers that wait now.
    """

    may_audit: float = BURST
    may_check: float = RESERVE
    refilled_at: float = 0.0
    counted: int = 0
    waiting: int = 0

    def refill(self, now: float) -> None:
        self.may_audit = min(self.may_audit + (now - self.refilled_at) / _INTERVAL_S, BURST)
        self.may_check = min(self.may_check + (now - self.refilled_at) * RESERVE, RESERVE)
        self.refilled_at = now

    @property
    def is_idle(self) -> bool:
        return self.may_audit >= BURST and not self.counted and not self.waiting


class Refusals:
    """Rate limiter for refusals. A source is an identity, or the host of an unknown client."""

    def __init__(self, audit: AuditLog, most_waiting: int) -> None:
        """Set the audit log, and how many callers of one source may wait at a time."""
        self._audit = audit
        self._most_waiting = max(1, min(most_waiting, _MOST_OF_A_SOURCE))
        self._lock = threading.Lock()
        self._sources: dict[str, _Source] = {}
        self._waiting = 0
        self._summarized_at = time.monotonic()

    def __len__(self) -> int:
        return len(self._sources)

    def audit(self, source: str, identity: Identity | None, **about: object) -> bool:
        """Audit a refusal, or only count it if the source exceeds its rate; return whether it was audited."""
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
    def reserve_wait(self, source: str) -> Iterator[bool]:
        """Count an unknown caller as waiting for its refusal during the block.

        Yields whether it may wait; False if too many callers wait already.
        """
        with self._lock:
            known = self._source(source)
            may_wait = known.waiting < self._most_waiting and self._waiting < _MOST_WAITING
            known.waiting += may_wait
            self._waiting += may_wait
        try:
            yield may_wait
        finally:
            with self._lock:
                known.waiting -= may_wait
                self._waiting -= may_wait

    def may_check(self, source: str) -> bool:
        """Return whether to check the token of a caller that may not wait.

        RESERVE per second bounds how fast a source can guess tokens.
        """
        with self._lock:
            known = self._source(source)
            known.refill(time.monotonic())
            may_check = known.may_check >= 1
            known.may_check -= may_check
        return may_check

    def summarize(self, is_last: bool = False) -> None:
        """Audit how many refusals were only counted, once a minute or if `is_last`, and forget idle sources."""
        now = time.monotonic()
        passed_s = now - self._summarized_at
        if passed_s < _SUMMARY_S and not is_last:
            return
        self._summarized_at = now
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
        return self._sources.setdefault(source, _Source(refilled_at=time.monotonic()))
