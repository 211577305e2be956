"""Metrics of a server of models for Prometheus.

Those that mean the same as Triton's have its names, without `_total`, so that its dashboards and scalers work.
"""

import platform
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from nnrt_client.pool.member import Member, MemberState
from nnrt_client.serving.repository.served_version import ServedVersion
from nnrt_client.serving.repository.version import Entry, State
from nnrt_client.serving.server_state import ServerState
from nnrt_hdi import __version__
from nnrt_hdi.certificate import expiry_of
from nnrt_hdi.counters import Durations
from nnrt_hdi.enums import ReturnCode

_PREFIX = "nnrt_server_"
_OF_MODEL = ("model", "version")
# Upper bounds of duration buckets: powers of two nanoseconds, from 65 microseconds to a minute.
_BITS = range(16, 37)
# Triton's reasons for failures, by names of our return codes; others are OTHER.
_REASONS = {
    ReturnCode.MEMORY_ERROR.name: "REJECTED",
    ReturnCode.FAILED.name: "BACKEND",
    ReturnCode.UNAVAILABLE_DEVICE.name: "BACKEND",
}
_CANCELED = "CANCELED"
_REASON_NAMES = ("REJECTED", _CANCELED, "BACKEND", "OTHER")


def metrics_of(state: ServerState, members: Iterable[Member], certificate: Path | None) -> list[Metric]:
    """Return the metrics of a server, of the devices of its pool, and of the file of its certificate."""
    versions = state.repository.find_all()
    return [
        *_of_server(state, certificate),
        *_of_devices(members),
        *_of_index(state.repository.index()),
        *_of_requests(versions),
    ]


def _of_server(state: ServerState, certificate: Path | None) -> Iterator[Metric]:
    about = {"version": __version__, "python": platform.python_version()}
    yield InfoMetricFamily(f"{_PREFIX}build", "Versions of the server.", about)
    yield _gauge("ready", "1 if every model that should be served is.", state.repository.is_ready)
    yield _gauge("held_bytes", "Bytes that requests under way hold.", state.intake.taken_bytes)
    yield _gauge("held_limit_bytes", "Limit on these bytes (--held-bytes).", state.intake.held_bytes)
    expires_at = None if certificate is None else expiry_of(certificate)
    if expires_at is not None:
        what = "Unix time at which the server's certificate expires."
        yield _gauge("certificate_expiry_timestamp_seconds", what, expires_at.timestamp())


def _of_devices(members: Iterable[Member]) -> Iterator[Metric]:
    what = "1 for the state that the server's pool gives a device, 0 for the others."
    states = GaugeMetricFamily(f"{_PREFIX}device_state", what, labels=("address", "device", "state"))
    for member in members:
        for one in MemberState:
            states.add_metric((member.address, member.name, one.value), one is member.state)
    yield states


def _of_index(entries: Sequence[Entry]) -> Iterator[Metric]:
    what = "1 for the state of a version of a model, 0 for the others."
    states = GaugeMetricFamily(f"{_PREFIX}model_state", what, labels=(*_OF_MODEL, "state"))
    for entry in entries:
        for one in State:
            states.add_metric((entry.model, entry.version, one.value), one is entry.state)
    yield states


def _of_requests(versions: Sequence[ServedVersion]) -> Iterator[Metric]:
    def numbers(name: str, what: str, values: Iterable[float]) -> Metric:
        made = Metric(f"nv_inference_{name}", what, "unknown")
        for version, value in zip(versions, values, strict=True):
            made.add_sample(made.name, _labels(version), value)
        return made

    def durations(name: str, what: str, part: str) -> Metric:
        sums = (getattr(version.statistics, part).ns / 1e3 for version in versions)
        return numbers(f"{name}_duration_us", f"Microseconds of successful requests, summed up: {what}.", sums)

    counted = [version.statistics for version in versions]
    yield numbers("request_success", "Successful requests.", (one.success.count for one in counted))
    yield _failures(versions)
    yield numbers("count", "Rows of successful requests.", (one.inferences for one in counted))
    yield numbers("exec_count", "Runs of successful requests.", (one.success.count for one in counted))
    what = "Requests that have been taken and not answered, those on a device included."
    yield numbers("pending_request_count", what, (version.under_way for version in versions))
    yield durations("request", "in all", "success")
    yield durations("queue", "waiting for a device", "queue")
    yield durations("compute_input", "copying inputs", "compute_input")
    yield durations("compute_infer", "computing", "compute_infer")
    yield durations("compute_output", "copying outputs", "compute_output")
    yield _codes(versions)
    yield _latencies(versions)
    devices = GaugeMetricFamily(f"{_PREFIX}model_devices", "Devices that have a version of a model.", labels=_OF_MODEL)
    for version in versions:
        devices.add_metric((version.model, version.version), len(version.session.devices))
    yield devices


def _failures(versions: Iterable[ServedVersion]) -> Metric:
    """Return the failed requests by Triton's reasons, each of which is told from the beginning."""
    made = Metric("nv_inference_request_failure", "Requests without a response, by reason.", "unknown")
    for version in versions:
        sums = dict.fromkeys(_REASON_NAMES, 0)
        sums[_CANCELED] = version.statistics.cancelled
        for code, count in version.statistics.failures.items():
            sums[_REASONS.get(code, "OTHER")] += count
        for reason, count in sums.items():
            made.add_sample(made.name, {**_labels(version), "reason": reason}, count)
    return made


def _codes(versions: Iterable[ServedVersion]) -> Metric:
    what = "Failed requests, by return code."
    made = CounterMetricFamily(f"{_PREFIX}failed_requests", what, labels=(*_OF_MODEL, "code"))
    for version in versions:
        for code, count in version.statistics.failures.items():
            made.add_metric((version.model, version.version, code), count)
    return made


def _latencies(versions: Iterable[ServedVersion]) -> Metric:
    what = "Time of successful requests in the server, waiting and computing included."
    made = HistogramMetricFamily(f"{_PREFIX}request_seconds", what, labels=_OF_MODEL)
    for version in versions:
        latencies = version.statistics.latencies
        made.add_metric((version.model, version.version), _buckets(latencies), latencies.total_s)
    return made


def _buckets(durations: Durations) -> list[tuple[str, float]]:
    """Return cumulative counts by upper bound in seconds."""
    within = [(str(2**bits / 1e9), float(sum(durations.counts[: bits + 1]))) for bits in _BITS]
    return [*within, ("+Inf", float(durations.count))]


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(_PREFIX + name, what, value)


def _labels(version: ServedVersion) -> dict[str, str]:
    return {"model": version.model, "version": version.version}
