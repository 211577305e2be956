"""Offset of a daemon's clock, with which a run's times to the daemon and back are computed separately."""

from typing import NamedTuple

# Number of answered beats that are kept, and number of beats sent without pause when a session begins.
_BEATS = 8
FIRST_BEATS = 4
# Relative drift of two clocks: PHI of NTP, 15 ppm (RFC 5905, section 4).
_DRIFT = 15e-6


class _Beat(NamedTuple):
    heard_ns: int
    offset_ns: int
    # Bound of the offset's error: one direction may have taken all of the round-trip time.
    error_ns: int


class DaemonClock:
    """Offset of a daemon's clock from the client's time.perf_counter_ns(), learned from answers to beats.

    As in NTP, the answer with the shortest round trip is the best (RFC 5905, section 10), and answers lose value with
    age.
    """

    def __init__(self) -> None:
        self._beats: tuple[_Beat, ...] = ()

    @property
    def is_known(self) -> bool:
        """True if enough beats have been answered."""
        return len(self._beats) >= FIRST_BEATS

    def learn(self, sent_ns: int, clock_ns: int, heard_ns: int) -> None:
        """Add the answer to a beat. The client sent the beat at `sent_ns` and got the answer at `heard_ns`.

        `clock_ns` is the daemon's time when it answered.
        """
        beat = _Beat(heard_ns, clock_ns - (sent_ns + heard_ns) // 2, (heard_ns - sent_ns + 1) // 2)
        self._beats = (*self._beats[1 - _BEATS :], beat)

    @property
    def offset_ns(self) -> int | None:
        """Nanoseconds to add to the client's time for the daemon's time, or None before the first answer.

        This is 0 if 0 is within the error, because daemons on the client's host have the same clock.
        """
        best = self._best()
        if best is None:
            return None
        return 0 if abs(best.offset_ns) <= best.error_ns else best.offset_ns

    @property
    def error_ns(self) -> int | None:
        """Largest error of the offset: half the round-trip time. None before the first answer."""
        best = self._best()
        return None if best is None else best.error_ns

    def _best(self) -> _Beat | None:
        beats = self._beats
        return min(beats, key=lambda beat: beat.error_ns - _DRIFT * beat.heard_ns, default=None)
