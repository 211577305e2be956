"""Time stamps of a run: when it went from one stage to the next."""

from collections.abc import Sequence
from itertools import accumulate
from time import perf_counter_ns

from nnrt_client.session.daemon_clock import DaemonClock
from nnrt_hdi.run_times import RunTimes


class Stamps:
    """Times (time.perf_counter_ns()) at which a run went from one stage to the next.

    The code of each stage sets them. A run that succeeded has all of them. Durations are computed on demand.
    """

    __slots__ = ("answered_ns", "began_ns", "clock", "packing_ns", "reply_times", "sent_ns", "unpacked_ns", "woken_ns")

    # When the client began to pack the run, and when it began to send the frame.
    packing_ns: int
    sent_ns: int
    # When the client had received the reply, and when it had read all outputs.
    answered_ns: int
    unpacked_ns: int
    # Times from the head of the reply (protos/README.md).
    reply_times: Sequence[int]

    def __init__(self, clock: DaemonClock) -> None:
        """Set the start of a run to now. `clock` converts the daemon's times."""
        self.began_ns = perf_counter_ns()
        self.clock = clock
        # When the waiting thread continued; 0 if none has.
        self.woken_ns = 0

    def wake(self) -> None:
        """Record that a waiting thread continues. Only the first thread counts."""
        self.woken_ns = self.woken_ns or perf_counter_ns()

    def times(self) -> RunTimes:
        """Return the durations of a successful run's stages, which add up to the time from first to last stamp."""
        marks = self.began_ns, self.packing_ns, self.sent_ns, self.answered_ns, self.unpacked_ns, self.woken_ns
        began_ns, packing_ns, sent_ns, answered_ns, unpacked_ns, woken_ns = accumulate(marks, max)
        received_at_ns, *parts, served_ns = self.reply_times
        left_ns = served_ns = min(served_ns or sum(parts), answered_ns - sent_ns)
        in_daemon = []
        for part_ns in parts:
            in_daemon.append(min(part_ns, left_ns))
            left_ns -= in_daemon[-1]
        wire_ns = answered_ns - sent_ns - served_ns
        outbound_ns = wire_ns // 2
        if received_at_ns and (offset_ns := self.clock.offset_ns) is not None:
            outbound_ns = min(max(received_at_ns - offset_ns - sent_ns, 0), wire_ns)
        return RunTimes._make(
            (
                packing_ns - began_ns,
                sent_ns - packing_ns,
                outbound_ns,
                left_ns,
                *in_daemon,
                wire_ns - outbound_ns,
                unpacked_ns - answered_ns,
                woken_ns - unpacked_ns,
            )
        )
