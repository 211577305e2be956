"""Prometheus metrics of a device."""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path

from cryptography import x509
from prometheus_client.metrics_core import Metric

from nnrt_device_service.device import Device
from nnrt_device_service.metrics.families import Families, Labels, Samples
from nnrt_hdi import __version__
from nnrt_hdi.access.watched_files import WatchedFiles
from nnrt_hdi.backend import CanaryState, Origin, Telemetry
from nnrt_hdi.counters import RUN_RESULTS, DeviceCounters, DeviceLoad, Durations, IdentityCounters, Residency
from nnrt_hdi.enums import DeviceStatus
from nnrt_hdi.errors import InvalidFile

# Parts of a run's time in the daemon, named as in `IdentityCounters`.
_PARTS = ("queued", "copied", "computed")


class DeviceCollector:
    """Prometheus collector that makes the metrics from the device's counters at each scrape."""

    def __init__(self, device: Device, certificate: Path | None, *, by_identity: bool) -> None:
        """Set the device; `by_identity` adds a label with the identity. Raises InvalidFile for a bad certificate."""
        self._device = device
        self._by_identity = by_identity
        self._started_at = device.sessions.counters.started_at
        self._expiry = None if certificate is None else WatchedFiles([certificate], lambda: _expiry_of(certificate))

    def collect(self) -> Iterator[Metric]:
        """Return the current metrics."""
        snapshot = self._device.counters_snapshot(None)
        made = Families(self._device.info.device_name)
        self._add_state(made, snapshot)
        if snapshot.load is not None:
            self._add_load(made, snapshot.load)
        if (telemetry := self._device.telemetry.latest) is not None:
            _add_telemetry(made, telemetry)
        if self._device.canary is not None:
            self._add_canary(made, self._device.canary.state)
        self._add_work(made, snapshot.identities)
        self._add_latencies(made, snapshot.identities)
        return iter(made)

    def _add_state(self, made: Families, snapshot: DeviceCounters) -> None:
        info, status = self._device.info, self._device.status
        about = {
            "version": __version__,
            "python": platform.python_version(),
            "backend": info.backend_name,
            "backend_version": info.backend_version,
            "vendor": info.vendor_name,
            "type": info.device_type.name,
        }
        made.info("build", "Versions of the daemon and the backend, and the device's type.", about)
        made.gauge("start_time_seconds", "Unix time at which the daemon started.", self._started_at)
        made.gauge("uptime_seconds", "Seconds since the daemon started.", snapshot.uptime_s)
        states: Samples = {(each.name,): float(each is status) for each in DeviceStatus}
        made.gauges("status", "1 for the current status of the device, 0 for the others.", ("status",), states)
        made.gauge("draining", "1 while the daemon takes no new work.", self._device.gate.is_closed)
        made.gauge("stuck", "1 if the device doesn't end work that was cancelled.", bool(self._device.stuck))
        if self._expiry is not None:
            made.gauge(
                "certificate_expiry_timestamp_seconds",
                "Unix time at which the daemon's certificate expires.",
                self._expiry.content(),
            )

    def _add_load(self, made: Families, load: DeviceLoad) -> None:
        made.gauge("slots", "Most runs that the device executes at a time.", load.slots)
        made.gauge("running_runs", "Runs on the device.", load.running)
        made.gauge("queued_runs", "Runs waiting for the device.", load.queued)
        made.gauge("queued_runs_limit", "Limit on waiting runs (--queued-runs).", load.queued_limit)
        made.gauge(
            "queue_full_ratio",
            "Fill level of the run queue (0 to 1), or of one identity's share if that is fuller.",
            self._device.scheduler.queue_full_ratio,
        )
        made.gauge("sessions", "Open sessions.", load.sessions)
        made.gauge("sessions_limit", "Limit on open sessions (--max-sessions).", load.sessions_limit)
        held: Samples = {(kind,): size for kind, size in load.held_bytes.items()}
        made.gauges("held_bytes", "Memory in use by clients, in bytes, by kind.", ("kind",), held)
        made.gauge("held_limit_bytes", "Limit on clients' memory in bytes (--held-bytes).", load.held_limit_bytes)
        made.gauge(
            "held_full_ratio",
            "Share of clients' memory limit in use (0 to 1), or of one identity's share if that is fuller.",
            self._device.sessions.budget.full_ratio,
        )
        made.gauge("run_memory_bytes", "Memory in use by runs, in bytes.", load.run_bytes)
        made.gauge("run_memory_limit_bytes", "Limit on runs' memory in bytes (--run-bytes).", load.run_limit_bytes)
        _add_residency(made, load.residency)
        isolated = self._device.isolated_bytes()
        made.gauge("isolated_models", "Processes of models that have one of their own (--isolate).", len(isolated))
        made.gauge("isolated_bytes", "Memory that these processes have, in bytes; some of it is shared.", sum(isolated))
        made.batches("batch_rows", "Rows per batch of several runs.", load.batches)
        made.counters(
            "batched_runs", "Runs that were computed in a batch with other runs.", (), {(): float(load.batches.runs)}
        )

    def _add_canary(self, made: Families, canary: CanaryState) -> None:
        made.gauge("canary_out", "1 while the device is suspended because its canary failed.", canary.is_out)
        right = canary.runs - canary.wrong - canary.late - canary.failed
        verdicts: Samples = {
            ("right",): right,
            ("wrong",): canary.wrong,
            ("late",): canary.late,
            ("failed",): canary.failed,
        }
        made.counters("canary_trials", "Trials with the canary model, by verdict.", ("verdict",), verdicts)
        made.gauge("canary_seconds", "Device time of the canary's latest answer.", canary.last_ns / 1e9)
        made.gauge("canary_usual_seconds", "Usual (median) device time of the canary's answers.", canary.usual_ns / 1e9)

    def _add_work(self, made: Families, identities: Sequence[IdentityCounters]) -> None:
        def counters(name: str, what: str, value: Callable[[IdentityCounters], float]) -> None:
            made.counters(name, what, self._labels(), self._sums(identities, value))

        def counters_by(label: str, name: str, what: str, attribute: str, known: Iterable[str] = ()) -> None:
            sums = self._sums_by(identities, attrgetter(attribute), known)
            made.counters(name, what, (*self._labels(), label), sums)

        counters_by("result", "runs", "Ended runs, by result.", "runs", RUN_RESULTS)
        counters_by("cause", "errors", "Errors of calls and runs, by error code or limit option.", "errors")
        counters_by("origin", "models", "Models made ready to run, by origin.", "models", Origin.__members__)
        counters("busy_seconds", "Device time of runs, successful or not.", attrgetter("run_s"))
        counters("compile_seconds", "Time to compile, check, restore and export models.", attrgetter("compile_s"))
        counters("input_bytes", "Bytes of the inputs of successful runs.", attrgetter("in_bytes"))
        counters("output_bytes", "Bytes of the outputs of successful runs.", attrgetter("out_bytes"))
        counters("opened_sessions", "Sessions opened since the daemon started.", attrgetter("opened_sessions"))
        made.gauges(
            "connections",
            "Open client connections, including those to the local socket.",
            self._labels(),
            self._sums(identities, attrgetter("connections")),
        )
        if self._by_identity:
            held = self._sums(identities, attrgetter("held_bytes"))
            made.gauges("identity_held_bytes", "Memory in use by an identity, in bytes.", self._labels(), held)

    def _add_latencies(self, made: Families, identities: Sequence[IdentityCounters]) -> None:
        """Add the latencies of all identities together: each identity's histograms would take over a hundred lines."""
        parts: dict[Labels, Durations] = {
            (part,): sum((getattr(each, part) for each in identities), Durations()) for part in _PARTS
        }
        made.histograms(
            "run_part_seconds",
            "Time of successful runs, by part: queued for the device, copied, computed.",
            ("part",),
            parts,
        )
        whole: dict[Labels, Durations] = {(): sum((each.served for each in identities), Durations())}
        made.histograms("run_seconds", "Total time of successful runs in the daemon.", (), whole)

    def _labels(self) -> Labels:
        return ("identity",) if self._by_identity else ()

    def _of(self, identity: IdentityCounters) -> Labels:
        return (identity.identity,) if self._by_identity else ()

    def _sums(self, identities: Sequence[IdentityCounters], value: Callable[[IdentityCounters], float]) -> Samples:
        sums: dict[Labels, float] = {}
        for identity in identities:
            labels = self._of(identity)
            sums[labels] = sums.get(labels, 0.0) + value(identity)
        return sums

    def _sums_by(
        self,
        identities: Sequence[IdentityCounters],
        values: Callable[[IdentityCounters], Mapping[str, int]],
        known: Iterable[str],
    ) -> Samples:
        """Sum up counts by name. `known` names have a 0 at first, as Prometheus sees no increase in a first sample."""
        sums: dict[Labels, float] = {}
        for identity in identities:
            counts = values(identity)
            for name in dict.fromkeys((*known, *counts)):
                labels = (*self._of(identity), name)
                sums[labels] = sums.get(labels, 0.0) + counts.get(name, 0)
        return sums


def _add_residency(made: Families, residency: Residency) -> None:
    made.gauge("resident_models", "Models on the device.", residency.models)
    made.gauge("resident_bytes", "Bytes of the models on the device.", residency.bytes)
    what = "Limit on models on the device in bytes (--resident-bytes); 0 for none."
    made.gauge("resident_limit_bytes", what, residency.limit_bytes)
    for name, what, count in (
        ("evicted_models", "Models that left the device for others.", residency.evicted),
        ("restored_models", "Models that came back from the store with their next run.", residency.restored),
        ("model_waits", "Runs that waited until their model was back. All others are hits.", residency.waits),
    ):
        made.counters(name, what, (), {(): float(count)})


def _add_telemetry(made: Families, telemetry: Telemetry) -> None:
    for name, what, figure in (
        ("temperature_celsius", "Temperature of the device.", telemetry.temperature_celsius),
        ("power_watts", "Power draw of the device.", telemetry.power_watts),
        ("memory_used_bytes", "Device memory in use by all processes.", telemetry.memory_used_bytes),
        ("memory_total_bytes", "Total device memory.", telemetry.memory_total_bytes),
        ("clock_hertz", "Clock frequency of the device.", telemetry.clock_hertz),
        ("utilization_ratio", "Utilization of the device (0 to 1), as the device reports it.", telemetry.utilization),
    ):
        if figure is not None:
            made.gauge(name, what, figure)


def _expiry_of(certificate: Path) -> float:
    try:
        return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc.timestamp()
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{certificate} is no PEM file of a certificate: {error}", place="--tls-cert") from error
