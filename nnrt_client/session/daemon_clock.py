"""The offset of a daemon's clock, so that the two ways of what passes between it and the client can be told apart."""

from typing import NamedTuple

# Beats that are remembered, and how many follow each other at once when a session begins.
_BEATS = 8
FIRST_BEATS = 4
# How far two clocks may drift apart meanwhile: PHI of NTP, 15 ppm (RFC 5905, section 4).
_DRIFT = 15e-6


class _Beat(NamedTuple):
    heard_ns: int
    offset_ns: int
    # How wrong the offset may be, for one of both ways may have taken all of the time.
    error_ns: int


class DaemonClock:
    """How far the clock of a daemon is ahead of time.perf_counter_ns here, by its answers to the beats of a session.

    As NTP has it, the answer that took least says most (RFC 5905, section 10), and less the older it is.
    """

    def __init__(self) -> None:
        self._beats: tuple[_Beat, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether there have been enough beats for now."""
        return len(self._beats) >= FIRST_BEATS

    def learn(self, sent_ns: int, clock_ns: int, heard_ns: int) -> None:
        """Take the answer to a beat: when it was sent and heard here, and what the daemon's clock said in between."""
        beat = _Beat(heard_ns, clock_ns - (sent_ns + heard_ns) // 2, (heard_ns - sent_ns + 1) // 2)
        self._beats = (*self._beats[1 - _BEATS :], beat)

    @property
    def offset_ns(self) -> int | None:
        """The offset; 0, which is that of all daemons on one host, wherever it can be. None before the first beat."""
        best = self._best()
        if best is None:
            return None
        return 0 if abs(best.offset_ns) <= best.error_ns else best.offset_ns

    @property
    def error_ns(self) -> int | None:
        """How wrong the offset may be: half of the time that the beat took. None before the first."""
        best = self._best()
        return None if best is None else best.error_ns

    def _best(self) -> _Beat | None:
        beats = self._beats
        return min(beats, key=lambda beat: beat.error_ns - _DRIFT * beat.heard_ns, default=None)
