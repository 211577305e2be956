"""Statistics of the requests of one version of a model."""

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnrt_hdi.counters import MAX_DURATION_COUNTS, Durations
from nnrt_hdi.errors import NnrtError

# Latest requests whose latencies are kept for quantiles.
_RECENT = 1024


@dataclass(slots=True)
class Duration:
    """Number of events, and their time in all."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        """Count an event that took `ns`."""
        self.count += 1
        self.ns += ns


class Statistics:
    """Counters of a version's requests. Only the server's loop uses them."""

    __slots__ = (
        *("_counts", "cancelled", "compute_infer", "compute_input", "compute_output", "fail", "failures", "inferences"),
        *("last_inference_s", "queue", "recent_s", "success"),
    )

    def __init__(self) -> None:
        self.success, self.fail = Duration(), Duration()
        # Parts of successful requests: waiting for the device, copying inputs, computing, copying outputs.
        self.queue, self.compute_input = Duration(), Duration()
        self.compute_infer, self.compute_output = Duration(), Duration()
        # Failed requests by the name of their return code, and those whose client went away.
        self.failures: Counter[str] = Counter()
        self.cancelled = 0
        # Rows of successful requests.
        self.inferences = 0
        # Time of the last request (time.time()), 0 before the first.
        self.last_inference_s = 0.0
        self.recent_s: deque[float] = deque(maxlen=_RECENT)
        # Successful requests by bit length of their nanoseconds.
        self._counts = [0] * MAX_DURATION_COUNTS

    @property
    def latencies(self) -> Durations:
        """Histogram of the latencies of all successful requests."""
        return Durations(tuple(self._counts), self.success.ns / 1e9)

    def count_success(self, ns: int, rows: int, times: Sequence[int] | None) -> None:
        """Count a request that took `ns`, with its times on the device, if they are known."""
        self.success.add(ns)
        self._counts[ns.bit_length()] += 1
        self.recent_s.append(ns / 1e9)
        self.inferences += rows
        self.last_inference_s = time.time()
        if times is not None:
            queued_ns, copied_in_ns, computed_ns, copied_out_ns = times
            self.queue.add(queued_ns)
            self.compute_input.add(copied_in_ns)
            self.compute_infer.add(computed_ns)
            self.compute_output.add(copied_out_ns)

    def count_failure(self, ns: int, error: NnrtError) -> None:
        """Count a request that failed after `ns`."""
        self.fail.add(ns)
        self.failures[error.code.name] += 1

    def latencies_s(self, quantiles: Sequence[float]) -> list[float]:
        """Return quantiles (0 to 1) of the latest latencies in seconds; NaN before the first request."""
        if not self.recent_s:
            return [float("nan")] * len(quantiles)
        return [float(one) for one in np.quantile(self.recent_s, quantiles)]
