"""Times at which a run went from one part of its way to the next."""

from collections.abc import Sequence
from itertools import accumulate
from time import perf_counter_ns

from nnrt_client.session.daemon_clock import DaemonClock
from nnrt_hdi.run_times import RunTimes


class Stamps:
    """Times of time.perf_counter_ns() at which a run went from one part of its way to the next.

    Whoever handles the run sets them; a run that succeeded has all of them. Differences are computed on demand.
    """

    __slots__ = ("answered_ns", "began_ns", "clock", "packing_ns", "sent_ns", "told", "unpacked_ns", "woken_ns")

    # When the client began to pack the run, and when it began to send it.
    packing_ns: int
    sent_ns: int
    # When the client had the reply, and when it had all outputs.
    answered_ns: int
    unpacked_ns: int
    # Times from the head of the reply (protos/README.md).
    told: Sequence[int]

    def __init__(self, clock: DaemonClock) -> None:
        """Start the times of a run now; `clock` is the daemon's."""
        self.began_ns = perf_counter_ns()
        self.clock = clock
        # When the thread that waited went on; 0: none did.
        self.woken_ns = 0

    def wake(self) -> None:
        """Record that the waiting thread goes on; of several threads the first counts."""
        self.woken_ns = self.woken_ns or perf_counter_ns()

    def times(self) -> RunTimes:
        """Return the parts of a successful run. They add up to the time from the first stamp to the last."""
        marks = self.began_ns, self.packing_ns, self.sent_ns, self.answered_ns, self.unpacked_ns, self.woken_ns
        began_ns, packing_ns, sent_ns, answered_ns, unpacked_ns, woken_ns = accumulate(marks, max)
        received_at_ns, *parts, served_ns = self.told
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
