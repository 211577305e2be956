"""Metric families of the Prometheus client, made from existing values."""

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from nnrt_hdi.counters import Batches, Durations

_PREFIX = "nnrt_device_"
# Upper bounds of duration buckets: powers of two nanoseconds, from a microsecond to a minute.
_BITS = range(10, 37)
# Upper bounds of row buckets: powers of two, from 2 to 1024.
_ROW_BITS = range(1, 11)

# Values by the values of the labels besides `device`.
Labels = tuple[str, ...]
Samples = Mapping[Labels, float]


class Families:
    """Metric families of one device, whose name is a label of each sample."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._made: list[Metric] = []

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._made)

    def info(self, name: str, what: str, values: Mapping[str, str]) -> None:
        """Add texts that rarely change. Prometheus appends `_info` to the name."""
        self._made.append(InfoMetricFamily(_PREFIX + name, what, {"device": self._device, **values}))

    def gauge(self, name: str, what: str, value: float) -> None:
        """Add a number that goes up and down."""
        self.gauges(name, what, (), {(): value})

    def gauges(self, name: str, what: str, labels: Sequence[str], samples: Samples) -> None:
        """Add numbers that go up and down, by labels."""
        self._add(GaugeMetricFamily(_PREFIX + name, what, labels=("device", *labels)), samples)

    def counters(self, name: str, what: str, labels: Sequence[str], samples: Samples) -> None:
        """Add numbers that only grow, by labels. Prometheus appends `_total` to the name."""
        self._add(CounterMetricFamily(_PREFIX + name, what, labels=("device", *labels)), samples)

    def histograms(self, name: str, what: str, labels: Sequence[str], samples: Mapping[Labels, Durations]) -> None:
        """Add histograms of durations, by labels."""
        family = HistogramMetricFamily(_PREFIX + name, what, labels=("device", *labels))
        for values, durations in samples.items():
            family.add_metric((self._device, *values), _buckets(durations), durations.total_s)
        self._made.append(family)

    def batches(self, name: str, what: str, batches: Batches) -> None:
        """Add a histogram of the rows per batch."""
        family = HistogramMetricFamily(_PREFIX + name, what, labels=("device",))
        within = [(str(2**bits), float(sum(batches.counts[: bits + 1]))) for bits in _ROW_BITS]
        family.add_metric((self._device,), [*within, ("+Inf", float(batches.count))], batches.rows)
        self._made.append(family)

    def _add(self, family: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> None:
        for values, value in samples.items():
            family.add_metric((self._device, *values), value)
        self._made.append(family)


def _buckets(durations: Durations) -> list[tuple[str, float]]:
    """Return cumulative counts by upper bound in seconds."""
    within = [(str(2**bits / 1e9), float(sum(durations.counts[: bits + 1]))) for bits in _BITS]
    return [*within, ("+Inf", float(durations.count))]
