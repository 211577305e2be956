"""All that Prometheus learns of a device."""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path

from cryptography import x509
from prometheus_client.metrics_core import Metric

from nnrt_device_service.access.watched_files import WatchedFiles
from nnrt_device_service.device import Device
from nnrt_device_service.metrics.families import Families, Labels, Samples
from nnrt_hdi import __version__
from nnrt_hdi.backend import CanaryState, Origin, Telemetry
from nnrt_hdi.counters import RUN_RESULTS, DeviceCounters, DeviceLoad, Durations, IdentityCounters
from nnrt_hdi.enums import DeviceStatus
from nnrt_hdi.errors import InvalidFile

# Of the parts that a run's time in the daemon has, the names of their counters.
_PARTS = ("queued", "copied", "computed")


class DeviceCollector:
    """Makes metrics of what the device has counted, when it is asked for them. Prometheus registers such objects."""

    def __init__(self, device: Device, certificate: Path | None, *, by_identity: bool) -> None:
        """`by_identity` has counters tell whose they are. Raises InvalidFile for a certificate that can't be read."""
        self._device = device
        self._by_identity = by_identity
        self._started_at = device.sessions.counters.started_at
        self._expiry = None if certificate is None else WatchedFiles([certificate], lambda: _expiry_of(certificate))

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        told = self._device.told_counters(None)
        made = Families(self._device.info.device_name)
        self._add_state(made, told)
        if told.load is not None:
            self._add_load(made, told.load)
        if (telemetry := self._device.telemetry.latest) is not None:
            _add_telemetry(made, telemetry)
        if self._device.canary is not None:
            self._add_canary(made, self._device.canary.state)
        self._add_work(made, told.identities)
        self._add_latencies(made, told.identities)
        return iter(made)

    def _add_state(self, made: Families, told: DeviceCounters) -> None:
        info, status = self._device.info, self._device.status
        about = {
            "version": __version__,
            "python": platform.python_version(),
            "backend": info.backend_name,
            "backend_version": info.backend_version,
            "vendor": info.vendor_name,
            "type": info.device_type.name,
        }
        made.info("build", "What the daemon and its device are.", about)
        made.gauge("start_time_seconds", "When the daemon started, in Unix time.", self._started_at)
        made.gauge("uptime_seconds", "Since then.", told.uptime_s)
        states: Samples = {(each.name,): float(each is status) for each in DeviceStatus}
        made.gauges("status", "1 for the status that the device has.", ("status",), states)
        made.gauge("draining", "1 while the daemon takes no new work.", self._device.gate.is_closed)
        made.gauge("stuck", "1 where the device does not end what it was to stop.", bool(self._device.stuck))
        if self._expiry is not None:
            made.gauge(
                "certificate_expiry_timestamp_seconds",
                "When the daemon's certificate ends, in Unix time.",
                self._expiry.content(),
            )

    def _add_load(self, made: Families, load: DeviceLoad) -> None:
        made.gauge("slots", "Runs that may be on the device at a time.", load.slots)
        made.gauge("running_runs", "Runs on the device.", load.running)
        made.gauge("queued_runs", "Runs that wait for the device.", load.queued)
        made.gauge("queued_runs_limit", "Runs that may wait, --queued-runs.", load.queued_limit)
        made.gauge(
            "queue_full_ratio",
            "Part of --queued-runs that waits, or of its --identity-share that one identity's do if that is more.",
            self._device.scheduler.queue_full_ratio,
        )
        made.gauge("sessions", "Sessions of clients.", load.sessions)
        made.gauge("sessions_limit", "Sessions that there may be, --max-sessions.", load.sessions_limit)
        held: Samples = {(kind,): size for kind, size in load.held_bytes.items()}
        made.gauges("held_bytes", "Bytes that clients hold, by what they are.", ("kind",), held)
        made.gauge("held_limit_bytes", "Bytes that clients may hold, --held-bytes.", load.held_limit_bytes)
        made.gauge(
            "held_full_ratio",
            "Part of --held-bytes that is held, or of its --identity-share that one identity holds if that is more.",
            self._device.sessions.held.full_ratio,
        )
        made.gauge("run_memory_bytes", "Bytes that runs have taken for what they make.", load.run_bytes)
        made.gauge("run_memory_limit_bytes", "Bytes that runs may take, --run-bytes.", load.run_limit_bytes)
        made.batches("batch_rows", "Rows of what was computed together for several runs.", load.batches)
        made.counters(
            "batched_runs", "Runs that were computed together with others.", (), {(): float(load.batches.runs)}
        )

    def _add_canary(self, made: Families, canary: CanaryState) -> None:
        made.gauge("canary_out", "1 while the canary has taken the device out.", canary.is_out)
        right = canary.runs - canary.wrong - canary.late - canary.failed
        verdicts: Samples = {
            ("right",): right,
            ("wrong",): canary.wrong,
            ("late",): canary.late,
            ("failed",): canary.failed,
        }
        made.counters("canary_trials", "Times that the canary tried the device, by verdict.", ("verdict",), verdicts)
        made.gauge("canary_seconds", "Time that the canary's latest answer took on the device.", canary.last_ns / 1e9)
        made.gauge("canary_usual_seconds", "Time that its answers usually take.", canary.usual_ns / 1e9)

    def _add_work(self, made: Families, identities: Sequence[IdentityCounters]) -> None:
        def counters(name: str, what: str, value: Callable[[IdentityCounters], float]) -> None:
            made.counters(name, what, self._labels(), self._sums(identities, value))

        def counters_by(label: str, name: str, what: str, attribute: str, known: Iterable[str] = ()) -> None:
            sums = self._sums_by(identities, attrgetter(attribute), known)
            made.counters(name, what, (*self._labels(), label), sums)

        counters_by("result", "runs", "Runs that have ended, by how.", "runs", RUN_RESULTS)
        counters_by("cause", "errors", "Errors of calls and runs, by the flag of a limit or the code.", "errors")
        counters_by("origin", "models", "Models prepared, by where they came from.", "models", Origin.__members__)
        counters("busy_seconds", "Time that runs were on the device, however they ended.", attrgetter("run_s"))
        counters("compile_seconds", "Time that compiling, checking and restoring took.", attrgetter("compile_s"))
        counters("input_bytes", "Bytes of the inputs of runs.", attrgetter("in_bytes"))
        counters("output_bytes", "Bytes of the outputs of runs.", attrgetter("out_bytes"))
        counters("opened_sessions", "Sessions that were opened.", attrgetter("opened_sessions"))
        made.gauges(
            "connections",
            "Connections of clients, those to the local socket included.",
            self._labels(),
            self._sums(identities, attrgetter("connections")),
        )
        if self._by_identity:
            held = self._sums(identities, attrgetter("held_bytes"))
            made.gauges("identity_held_bytes", "Bytes that an identity holds.", self._labels(), held)

    def _add_latencies(self, made: Families, identities: Sequence[IdentityCounters]) -> None:
        """Those of all identities together, for each would take a hundred lines and more."""
        parts: dict[Labels, Durations] = {
            (part,): sum((getattr(each, part) for each in identities), Durations()) for part in _PARTS
        }
        made.histograms(
            "run_part_seconds",
            "Time that runs waited for the device, were copied to and from it, and were computed.",
            ("part",),
            parts,
        )
        whole: dict[Labels, Durations] = {(): sum((each.served for each in identities), Durations())}
        made.histograms("run_seconds", "Time that runs took in the daemon, all parts together.", (), whole)

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
        """What is known counts from 0: Prometheus sees no growth in a number that it has never seen before."""
        sums: dict[Labels, float] = {}
        for identity in identities:
            counts = values(identity)
            for name in dict.fromkeys((*known, *counts)):
                labels = (*self._of(identity), name)
                sums[labels] = sums.get(labels, 0.0) + counts.get(name, 0)
        return sums


def _add_telemetry(made: Families, telemetry: Telemetry) -> None:
    for name, what, figure in (
        ("temperature_celsius", "How warm the device is.", telemetry.temperature_celsius),
        ("power_watts", "Power that the device takes.", telemetry.power_watts),
        ("memory_used_bytes", "Memory of the device that is in use, by whomever.", telemetry.memory_used_bytes),
        ("memory_total_bytes", "Memory of the device.", telemetry.memory_total_bytes),
        ("clock_hertz", "Clock of the device.", telemetry.clock_hertz),
        ("utilization_ratio", "Part of the time that the device computes, as it says.", telemetry.utilization),
    ):
        if figure is not None:
            made.gauge(name, what, figure)


def _expiry_of(certificate: Path) -> float:
    try:
        return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc.timestamp()
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{certificate} is no PEM file of a certificate: {error}", place="--tls-cert") from error
