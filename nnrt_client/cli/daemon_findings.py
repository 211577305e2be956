"""Checks of `nnrt doctor` on a daemon: its state, its limits and refusals, and the latency of a run."""

import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from nnrt_client.build.compilation import Compilation
from nnrt_client.cli.findings import Finding, advise, ok, problem
from nnrt_client.cli.printing import format_bytes
from nnrt_client.cli.run_parts import format_largest_parts
from nnrt_client.cli.work import Work, sees_all, total
from nnrt_client.enums import OperationType
from nnrt_client.model.model import Model
from nnrt_client.run.executor import Executor
from nnrt_client.session.device import Device
from nnrt_client.session.runtime import Look
from nnrt_hdi import PROTOCOL_MINOR
from nnrt_hdi.backend import Origin
from nnrt_hdi.chunks import FEATURE as CHUNKS
from nnrt_hdi.counters import FEATURE as COUNTERS
from nnrt_hdi.counters import DeviceCounters
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.run_times import RunTimes

# Features of every daemon of this version.
_FEATURES = (CHUNKS, COUNTERS)
# Fraction of a limit; if more is in use, the advice is to raise the limit.
_NEAR = 0.8
_OFTEN = 0.01
_RUNS, _RUN_TIMEOUT_MS = 100, 10_000
# Latency above which the trial run counts as slow.
_SLOW_RUN_NS = 5_000_000
_ELEMENTS = 256

# Advice by cause, for refusals that no limit caused.
_CAUSES = {
    "--canary": "the canary had taken the device out of service: docs/guides/watch.md, Canary",
    "OPERATION_FORBIDDEN": "give who needs it a higher role: nnrt-device keys token FOLDER NAME --role ROLE --replace",
    "CONNECTION_EXCEPTION": "clients came that the --access file doesn't name; look in the --audit-log who",
    "INVALID_PARAMETER": "clients sent what no device can run; their errors name the place",
    "UNSUPPORTED": "clients sent models that this device doesn't run; nnrt explain MODEL says why, and what runs it",
}


def check_version(device: Device) -> Iterator[Finding]:
    """Check whether the daemon has every feature that this client knows."""
    welcome, info = device._session().welcome, device.info
    lacking = [feature for feature in _FEATURES if feature not in welcome.features]
    found = f"{device.name} by {info.backend_name} {info.backend_version}; protocol 2.{welcome.protocol_minor}"
    if lacking or welcome.protocol_minor < PROTOCOL_MINOR:
        what = f", without {', '.join(lacking)}" if lacking else ""
        yield advise("daemon", f"{found}{what}: it is older than this client", "install the same version of nnrt there")
    else:
        yield ok("daemon", found)


def check_state(look: Look) -> Iterator[Finding]:
    """Check whether the device takes work."""
    if look.why or look.status is None:
        yield problem(
            "state",
            look.why,
            "nnrt-device report NAME there, and its log, say more; another device takes over meanwhile",
        )
    else:
        yield ok("state", f"{look.status.name}: it takes work")


def check_canary(device: Device) -> Iterator[Finding]:
    """Check the results of the daemon's canary, which runs a model on the device at intervals."""
    found = device.canary()
    if found is None:
        yield ok(
            "canary", "the daemon doesn't try its device; with --canary 5 it would take out one that computes wrongly"
        )
        return
    found_text = (
        f"tried {found.runs:,} times: {found.wrong} answers were wrong, {found.late} late, {found.failed} missing;"
        f" the last took {found.last_ns / 1e6:.2f} ms, where {found.usual_ns / 1e6:.2f} ms are usual"
    )
    if found.wrong or found.late or found.failed:
        yield advise("canary", found_text, "the daemon's log says when and how; docs/guides/alerts.md")
    else:
        yield ok("canary", found_text)


def check_counters(device: Device) -> Iterator[Finding]:
    """Check how near the daemon is to its limits, and which runs it has refused or failed since its start."""
    try:
        counters = device.counters()
    except Unsupported as error:
        yield advise("counters", error.message, "install the same version of nnrt there")
        return
    yield from check_limits(counters)
    work = Work(total(counters.identities), counters.uptime_s)
    whose = "" if sees_all(counters) else " of your own"
    yield from check_failures(work, whose)
    yield from check_refusals(work, whose)
    yield from check_store(device, work)


def check_limits(counters: DeviceCounters) -> Iterator[Finding]:
    """Check how much of each limited resource is in use."""
    load = counters.load
    if load is None:
        return
    held_bytes = sum(load.held_bytes.values())
    uses = {
        "--queued-runs": (load.queued, load.queued_limit, f"{load.queued} of {load.queued_limit} runs wait"),
        # One session is the doctor's own.
        "--max-sessions": (
            load.sessions - 1,
            load.sessions_limit,
            f"{load.sessions} of {load.sessions_limit} sessions",
        ),
        "--held-bytes": (
            *(held_bytes, load.held_limit_bytes),
            f"{format_bytes(held_bytes)} of {format_bytes(load.held_limit_bytes)} of memory in use",
        ),
        "--run-bytes": (
            *(load.run_bytes, load.run_limit_bytes),
            f"{format_bytes(load.run_bytes)} of {format_bytes(load.run_limit_bytes)} used by runs",
        ),
    }
    near = {flag: found for flag, (used, limit, found) in uses.items() if limit and used > _NEAR * limit}
    for flag, found in near.items():
        yield advise("limits", found, f"nnrt-device serve {flag} with more, or another device (docs/guides/fleet.md)")
    if not near:
        yield ok("limits", "; ".join(found for _, _, found in uses.values()))


def check_failures(work: Work, whose: str) -> Iterator[Finding]:
    """Check how many runs fail."""
    ended = work.runs + work.failures
    found = f"{work.failures:,} of {ended:,} runs{whose} failed or took too long, in {work.seconds:,.0f} s"
    if work.failures > _OFTEN * ended:
        yield advise("failures", found, "their errors say why; the daemon's log has those that it did not expect")
    else:
        yield ok("failures", found)


def check_refusals(work: Work, whose: str) -> Iterator[Finding]:
    """Check how many requests the daemon refused, and for which cause."""
    if not work.refusals:
        yield ok("refusals", f"none{whose}")
    for cause, count in sorted(work.refused.items(), key=lambda item: -item[1]):
        is_limit = cause.startswith("--")
        usual = f"nnrt-device serve {cause} with more, if that is to be allowed" if is_limit else "their errors say why"
        yield advise("refusals", f"{count:,}{whose} by {cause}", _CAUSES.get(cause, usual))


def check_store(device: Device, work: Work) -> Iterator[Finding]:
    """Check whether the daemon compiles models repeatedly because it has no store."""
    compiled = work.counted.models.get(Origin.COMPILED.name, 0)
    found = (
        f"{sum(work.counted.models.values())} models, {compiled} of them compiled, in {work.counted.compile_s:.1f} s"
    )
    if device._session().keeps_models or not device.capabilities.model_cache or compiled < 2:
        yield ok("models", found)
    else:
        yield advise("models", f"{found}; none is kept", "nnrt-device serve --store-dir DIR keeps them over restarts")


def check_trial(device: Device) -> Iterator[Finding]:
    """Run a small model repeatedly, and check its results and which parts of a run take longest."""
    model, ones = _addition(), np.ones(_ELEMENTS, np.float32)
    (support,) = model.supported_operations(device)
    if not support.supported:
        yield ok("trial run", f"not tried: the device doesn't add numbers of FLOAT32 ({support.reason})")
        return
    with Compilation(model, device) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            results = [executor.run_sync([ones], timeout_ms=_RUN_TIMEOUT_MS) for _ in range(_RUNS)]
    # Without the first run, which also sets everything up.
    times = [result.times for result in results[1:] if result.times is not None]
    if any(result[0].tolist() != [3.0] * _ELEMENTS for result in results):
        yield problem("trial run", "1 + 2 is not 3 there", "nnrt-device serve --canary 5 takes it out while that is so")
    elif not times:
        yield ok("trial run", "it works; the daemon reports no times")
    else:
        yield from check_latency(times)


def check_latency(times: Sequence[RunTimes]) -> Iterator[Finding]:
    """Check the usual latency of the trial runs, and which parts of a run took longest."""
    usual = RunTimes._make(int(statistics.median(part)) for part in zip(*times, strict=True))
    slowest_ms = max(each.total_ns for each in times) / 1e6
    found = (
        f"a run of 1 KiB takes {usual.total_ns / 1e6:.2f} ms, the slowest of {len(times)} {slowest_ms:.2f} ms;"
        f" largest parts: {format_largest_parts(usual)}"
    )
    if usual.slowest == "queued":
        yield advise("trial run", found, "nnrt top --by user says who else uses the device")
    elif usual.total_ns > _SLOW_RUN_NS:
        yield advise("trial run", found, f"docs/guides/slow-runs.md says what helps: {usual.slowest}")
    else:
        yield ok("trial run", found)


def _addition() -> Model:
    """Build the model y = x + 2."""
    model = Model()
    x = model.input((_ELEMENTS,), name="x")
    y = model.apply(OperationType.ADD, x, np.array([2], np.float32))
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model
