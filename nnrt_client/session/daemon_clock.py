"""Offset of a daemon's clock, which tells the time to the daemon from the time back."""

from typing import NamedTuple

# Answered beats that are remembered, and beats that follow each other at once when a session begins.
_BEATS = 8
FIRST_BEATS = 4
# How far two clocks drift apart per time: PHI of NTP, 15 ppm (RFC 5905, section 4).
_DRIFT = 15e-6


class _Beat(NamedTuple):
    heard_ns: int
    offset_ns: int
    # How wrong the offset may be: one of the two ways may have taken all of the time.
    error_ns: int


class DaemonClock:
    """Offset of a daemon's clock from time.perf_counter_ns here, learned from the daemon's answers to beats.

    As in NTP, the answer that took least time is the best (RFC 5905, section 10), and each gets worse with its age.
    """

    def __init__(self) -> None:
        self._beats: tuple[_Beat, ...] = ()

    @property
    def is_known(self) -> bool:
        """True if enough beats have been answered."""
        return len(self._beats) >= FIRST_BEATS

    def learn(self, sent_ns: int, clock_ns: int, heard_ns: int) -> None:
        """Take the answer to a beat that was sent at `sent_ns` and heard at `heard_ns`.

        `clock_ns` is what the daemon's clock said in between.
        """
        beat = _Beat(heard_ns, clock_ns - (sent_ns + heard_ns) // 2, (heard_ns - sent_ns + 1) // 2)
        self._beats = (*self._beats[1 - _BEATS :], beat)

    @property
    def offset_ns(self) -> int | None:
        """Offset of the best answer, or None before the first.

        It is 0 if 0 is within the error, because all daemons on this host have offset 0.
        """
        best = self._best()
        if best is None:
            return None
        return 0 if abs(best.offset_ns) <= best.error_ns else best.offset_ns

    @property
    def error_ns(self) -> int | None:
        """Largest error of the offset: half the time that the beat took. None before the first answer."""
        best = self._best()
        return None if best is None else best.error_ns

    def _best(self) -> _Beat | None:
        beats = self._beats
        return min(beats, key=lambda beat: beat.error_ns - _DRIFT * beat.heard_ns, default=None)
