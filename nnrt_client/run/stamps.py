"""Times at which a run went from one part of its way to the next."""

from collections.abc import Sequence
from itertools import accumulate
from time import perf_counter_ns

from nnrt_client.session.daemon_clock import DaemonClock
from nnrt_hdi.run_times import RunTimes


class Stamps:
    """When a run went from one part of its way to the next, on the clock of time.perf_counter_ns.

    Whoever has the run in hand sets them; a run that has succeeded has them all. What follows from them is worked out
    when somebody asks.
    """

    __slots__ = ("answered_ns", "began_ns", "clock", "packing_ns", "sent_ns", "told", "unpacked_ns", "woken_ns")

    # When the client began to make what is sent, and when it began to send that.
    packing_ns: int
    sent_ns: int
    # When it had all of the reply, and all outputs of it.
    answered_ns: int
    unpacked_ns: int
    # What the head of the reply tells (protos/README.md).
    told: Sequence[int]

    def __init__(self, clock: DaemonClock) -> None:
        """The run begins now, on a daemon of that clock."""
        self.began_ns = perf_counter_ns()
        self.clock = clock
        # When the thread that waited for it went on; 0 where none did.
        self.woken_ns = 0

    def wake(self) -> None:
        """The thread that waited goes on. Of several the first one counts."""
        self.woken_ns = self.woken_ns or perf_counter_ns()

    def times(self) -> RunTimes:
        """Split the time of a run that has succeeded. The sum is that from the first stamp to the last, whatever the
        daemon tells."""
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
