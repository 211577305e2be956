"""Metrics say what the daemon's counters say, by the conventions of Prometheus."""

import re
import ssl
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from access.conftest import Access, Fleet, access, fleet, make_fleet, start
from conftest import StartDaemon
from cryptography import x509
from networks import identity_model, weighted_model
from waiting import until

from metrics.scraping import LISTEN, scraped, value
from nnrt_client import (
    Compilation,
    Device,
    Executor,
    OutOfMemory,
    ResidentTensor,
    Runtime,
    TensorDesc,
    TimedOut,
)
from nnrt_client.enums import DataType
from nnrt_hdi.files.store_directory import SUFFIX

__all__ = ["access", "fleet", "make_fleet"]

ONE = np.ones(1, np.float32)
MIB = 1 << 20
PREFIX = "nnrt_device_"
WEIGHTS = 4096


def executor_on(device: Device, closing: ExitStack) -> Executor:
    compilation = closing.enter_context(Compilation(identity_model(), device))
    compilation.build()
    return closing.enter_context(Executor(compilation))


def test_what_they_say(start_daemon: StartDaemon, closing: ExitStack) -> None:
    """The same as the counters, once nothing is under way."""
    daemon = start_daemon(*LISTEN, "--session-bytes", str(8 * MIB), "--concurrent-runs", "2", "--name", "rack7")
    device = closing.enter_context(Runtime([daemon.address])).device()
    executor = executor_on(device, closing)
    for _ in range(5):
        executor.run_sync([ONE])
    desc = TensorDesc(DataType.UINT8, [5 * MIB])
    closing.enter_context(ResidentTensor(device, desc)).write(np.zeros(5 * MIB, np.uint8))
    with pytest.raises(OutOfMemory), ResidentTensor(device, desc) as more:
        more.write(np.zeros(5 * MIB, np.uint8))
    metrics, counters = scraped(daemon), device.counters()
    own, load = counters.identities[0], counters.load
    assert load is not None
    assert value(metrics, "nnrt_device_runs_total", device="rack7", result="done") == 5
    assert value(metrics, "nnrt_device_runs_total", result="failed") == 0
    assert value(metrics, "nnrt_device_errors_total", cause="--session-bytes") == 1
    assert value(metrics, "nnrt_device_models_total", origin="COMPILED") == 1
    assert value(metrics, "nnrt_device_busy_seconds_total") == pytest.approx(own.run_s)
    assert value(metrics, "nnrt_device_compile_seconds_total") == pytest.approx(own.compile_s)
    assert value(metrics, "nnrt_device_input_bytes_total") == 5 * ONE.nbytes
    assert value(metrics, "nnrt_device_output_bytes_total") == 5 * ONE.nbytes
    assert value(metrics, "nnrt_device_sessions") == value(metrics, "nnrt_device_opened_sessions_total") == 1
    assert value(metrics, "nnrt_device_connections") == own.connections
    assert value(metrics, "nnrt_device_slots") == 2
    assert value(metrics, "nnrt_device_queued_runs_limit") == load.queued_limit
    assert value(metrics, "nnrt_device_held_bytes", kind="buffers") >= 5 * MIB
    assert value(metrics, "nnrt_device_held_limit_bytes") == load.held_limit_bytes
    assert value(metrics, "nnrt_device_run_memory_limit_bytes") == load.run_limit_bytes
    assert value(metrics, "nnrt_device_status", status="AVAILABLE") == 1
    assert value(metrics, "nnrt_device_build_info", backend="reference") == 1
    assert value(metrics, "nnrt_device_uptime_seconds") <= counters.uptime_s
    for part in ("queued", "copied", "computed"):
        durations = getattr(own, part)
        assert value(metrics, "nnrt_device_run_part_seconds_count", part=part) == 5
        assert value(metrics, "nnrt_device_run_part_seconds_sum", part=part) == pytest.approx(durations.total_s)
    assert value(metrics, "nnrt_device_run_seconds_bucket", le="+Inf") == 5
    assert value(metrics, "nnrt_device_run_seconds_bucket", le="1.024e-06") == 0
    bounds = [sample.value for sample in metrics["nnrt_device_run_seconds"].samples if "le" in sample.labels]
    assert bounds == sorted(bounds)
    again = scraped(daemon)
    assert value(again, "nnrt_device_start_time_seconds") == value(metrics, "nnrt_device_start_time_seconds")


def test_how_they_are_named(start_daemon: StartDaemon) -> None:
    """By https://prometheus.io/docs/practices/naming: base units, counters in _total (which the parser takes off), one
    prefix; and each is explained."""
    metrics = scraped(start_daemon(*LISTEN))
    ours = {name: family for name, family in metrics.items() if name.startswith(PREFIX)}
    assert set(metrics) - set(ours) <= {name for name in metrics if name.startswith("process_")}
    for name, family in ours.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
        assert family.documentation.endswith(".")
        assert all(sample.labels["device"] == "reference" for sample in family.samples)
        assert not any(unit in name for unit in ("_ms", "_ns", "_milliseconds", "_mib"))


def test_identities_are_told_only_if_asked_for(start_daemon: StartDaemon, access: Access, closing: ExitStack) -> None:
    people = [access.add(name, "compile") for name in ("a", "b")]
    silent, telling = (start(start_daemon, access, *LISTEN, *flags) for flags in ((), ("--metrics-identities",)))
    for daemon in (silent, telling):
        for runs, settings in enumerate(people, start=1):
            device = closing.enter_context(Runtime([daemon.address], settings)).device()
            executor = executor_on(device, closing)
            for _ in range(runs):
                executor.run_sync([ONE])
    metrics = scraped(silent)
    assert not any("identity" in sample.labels for family in metrics.values() for sample in family.samples)
    assert value(metrics, "nnrt_device_runs_total", result="done") == 3
    metrics = scraped(telling)
    assert value(metrics, "nnrt_device_runs_total", result="done", identity="a") == 1
    assert value(metrics, "nnrt_device_runs_total", result="done", identity="b") == 2
    assert value(metrics, "nnrt_device_busy_seconds_total", identity="b") > 0
    assert value(metrics, "nnrt_device_identity_held_bytes", identity="b") > 0
    assert value(metrics, "nnrt_device_run_seconds_count") == 3


def test_runs_that_wait_and_fail(start_daemon: StartDaemon, closing: ExitStack) -> None:
    """A run that is still on the device makes it busy, and no number that may only grow ever shrinks."""
    daemon = start_daemon(*LISTEN, "--backend", "slow", "--concurrent-runs", "1", "--queued-runs", "1")
    executor = executor_on(closing.enter_context(Runtime([daemon.address])).device(), closing)
    run = executor.submit([ONE])
    until(lambda: "run started" in daemon.log())
    waiting = executor.submit([ONE])
    until(lambda: value(scraped(daemon), "nnrt_device_queued_runs") == 1)
    first, second = scraped(daemon), scraped(daemon)
    assert value(first, "nnrt_device_running_runs") == 1
    for each in (waiting, run):
        each.cancel()
    until(lambda: value(scraped(daemon), "nnrt_device_runs_total", result="cancelled") == 2)
    busy = [value(each, "nnrt_device_busy_seconds_total") for each in (first, second, scraped(daemon))]
    assert 0 < busy[0] < busy[1] <= busy[2]
    with pytest.raises(TimedOut):
        executor.run_sync([ONE], timeout_ms=50)
    # The client stops a run whose time is over as well, and may be first.
    ends = ("timed_out", "cancelled")
    until(lambda: sum(value(scraped(daemon), "nnrt_device_runs_total", result=result) for result in ends) == 3)


def test_full_is_what_refuses_an_identity_more(start_daemon: StartDaemon, closing: ExitStack) -> None:
    """Its share of the queue and of memory is full before these are; with nothing there, nothing is."""
    limits = ("--queued-runs", "4", "--held-bytes", str(8 * MIB))
    daemon = start_daemon(*LISTEN, "--backend", "slow", "--concurrent-runs", "1", *limits)
    device = closing.enter_context(Runtime([daemon.address])).device()
    executor = executor_on(device, closing)
    before = scraped(daemon)
    assert value(before, "nnrt_device_queue_full_ratio") == 0
    assert value(before, "nnrt_device_held_full_ratio") < 0.1
    runs = [executor.submit([ONE]) for _ in range(1 + 3)]
    until(lambda: value(scraped(daemon), "nnrt_device_queued_runs") == 3)
    with pytest.raises(OutOfMemory, match="--identity-share or --queued-runs"):
        executor.run_sync([ONE])
    with pytest.raises(OutOfMemory, match="--identity-share or --held-bytes"):
        for _ in range(8):
            desc = TensorDesc(DataType.UINT8, [MIB - 4096])
            closing.enter_context(ResidentTensor(device, desc)).write(np.zeros(MIB - 4096, np.uint8))
    full = scraped(daemon)
    assert value(full, "nnrt_device_queued_runs") == 0.75 * value(full, "nnrt_device_queued_runs_limit")
    assert value(full, "nnrt_device_queue_full_ratio") == 1
    assert 0.9 < value(full, "nnrt_device_held_full_ratio") <= 1
    for run in runs:
        run.cancel()


def test_when_the_certificate_ends(start_daemon: StartDaemon, fleet: Fleet) -> None:
    daemon = start_daemon(*fleet.flags, *LISTEN)
    metrics = scraped(daemon, ssl.create_default_context(cafile=fleet.ca))
    ends = x509.load_pem_x509_certificate(fleet.certificate.read_bytes()).not_valid_after_utc
    assert value(metrics, "nnrt_device_certificate_expiry_timestamp_seconds") == ends.timestamp()


def test_what_models_hold(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """One that is compiled holds its constants, one that comes from the store what it is made of, until they go."""
    daemon = start_daemon(*LISTEN, "--store-dir", str(tmp_path))

    def held(kind: str) -> float:
        return value(scraped(daemon), "nnrt_device_held_bytes", kind=kind)

    with Runtime([daemon.address]) as runtime, Compilation(weighted_model(WEIGHTS), runtime.device()) as compiled:
        compiled.build()
        assert held("constants") >= 4 * WEIGHTS > held("models")
        until(lambda: list(tmp_path.rglob(f"*{SUFFIX}")))
    with Runtime([daemon.address]) as runtime:
        with Compilation(weighted_model(WEIGHTS), runtime.device()) as stored:
            stored.build()
            assert value(scraped(daemon), "nnrt_device_models_total", origin="STORED") == 1
            assert held("models") >= 4 * WEIGHTS
        until(lambda: held("models") == 0)
