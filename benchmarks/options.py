"""Cost of a canary, TLS, tracing and isolation per run."""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import ROUNDS, RUNS, SIZES, Report, Run, alternate, device_daemon, in_rounds, median_us, pair_cells
from onnx.parser import parse_model
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import get_tracer, set_tracer_provider
from working_client import executor_of, identity

from nnrt_client import Settings, Way, load
from nnrt_device_service.access.keys import CA, Authority
from nnrt_device_service.access.tokens import issue_token
from nnrt_hdi.access.identity import Identity, Role

HOST = "127.0.0.1"
COLUMNS = ("option", "run", "without µs", "with µs", "ratio", "quartiles")


class _NullExporter(SpanExporter):
    """Exporter that drops all spans."""

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def measure() -> Iterator[Report]:
    """Measure runs with each option against runs without it."""
    report = Report(
        "What options cost a run",
        f"p50 of up to {RUNS} runs of x + 0 without and with an option, in {ROUNDS} alternating rounds. ratio: with the"
        " option divided by without, median over the rounds, with quartiles. In the first row neither side has an"
        " option: it shows the noise. The canary runs every second. With TLS the client also has a token, which the"
        " daemon checks when the session opens: a run pays only for encryption. In the last row of traces every run is"
        " part of a sampled span of the application, in an otherwise idle process.",
        COLUMNS,
    )
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(_NullExporter()))
        set_tracer_provider(provider)
        stack.callback(provider.shutdown)
        plain, other, watched = (
            stack.enter_context(device_daemon(f"unix:{folder}/{name}", *options)).address
            for name, options in (("plain", ()), ("other", ()), ("watched", ("--canary", "1")))
        )
        application = partial(get_tracer(__name__).start_as_current_span, "application")
        for option, address, settings, span in (
            ("none", other, Settings(), nullcontext),
            ("canary", watched, Settings(), nullcontext),
            ("tracing, no sampled span", plain, Settings(trace=True), nullcontext),
            ("tracing, every run sampled", plain, Settings(trace=True), application),
        ):
            _add(report, (option, "1 KB, local socket"), (plain, Settings()), (address, settings), "1 KB", RUNS, span)
        flags, secured = _secure(Path(folder))
        tcp, tls = (stack.enter_context(device_daemon(f"{HOST}:0", *each)).address for each in ((), flags))
        for size, runs in (("1 KB", RUNS), ("600 KB", 20), ("64 MB", 1)):
            _add(report, ("TLS", f"{size}, TCP"), (tcp, Settings(share_memory=False)), (tls, secured), size, runs)
    yield report
    yield _compare_isolation()


def _compare_isolation() -> Report:
    report = Report(
        "What a process of its own costs a run",
        "p50 of 10 runs of an ONNX file as it is on ONNX Runtime, of daemons with `--isolate none` and"
        f" `--isolate programs`, in {5 * ROUNDS} alternating rounds over the local socket. added: the difference of"
        " both, median over the rounds. ratio: isolated divided by not, median over the rounds, with quartiles.",
        ("run", "none µs", "programs µs", "added µs", "ratio", "quartiles"),
    )
    products = "".join(f"m{n + 1} = MatMul (m{n}, m0) " for n in range(5))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        none, programs = (
            stack.enter_context(
                device_daemon(f"unix:{folder}/{isolate}", "--backend", "onnxruntime", "--isolate", isolate)
            ).address
            for isolate in ("none", "programs")
        )
        for case, shape, nodes in (
            ("x + x, 1 KB", (256,), "y = Add (x, x)"),
            ("x + x, 600 KB", (3 * 224 * 224,), "y = Add (x, x)"),
            ("5 products of 512 x 512", (512, 512), f"m0 = Identity (x) {products} y = Identity (m5)"),
        ):
            dims = ", ".join(map(str, shape))
            text = f'<ir_version: 8, opset_import: ["" : 17]> f (float[{dims}] x) => (float[{dims}] y) {{ {nodes} }}'
            file, x = parse_model(text).SerializeToString(), np.ones(shape, np.float32)
            inside, apart = (_program(stack, file, x, address) for address in (none, programs))
            pairs = alternate(inside, apart, 10, 5 * ROUNDS)
            off, on, *ratio = pair_cells(pairs)
            report.add(case, off, on, f"{statistics.median(on - off for off, on in pairs):.0f}", *ratio)
    return report


def _program(stack: ExitStack, file: bytes, x: Any, address: str) -> Run:
    session = stack.enter_context(load(file, address, ways=[Way.PROGRAM]))
    return partial(session.run, {"x": x})


def _add(
    report: Report,
    case: Sequence[str],
    without: tuple[str, Settings],
    with_option: tuple[str, Settings],
    size: str,
    runs: int,
    span: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> None:
    """Add a row: runs with an option against runs without it, each with an address and settings of its own.

    `span` is entered for each round of runs with the option.
    """

    def measure_in_span(run: Run) -> float:
        with span():
            return median_us(run, runs)

    x = [np.ones(SIZES[size], np.float32)]
    with ExitStack() as stack:
        off, on = (
            partial(stack.enter_context(executor_of(identity(SIZES[size]), address, settings)).run_sync, x)
            for address, settings in (without, with_option)
        )
        rounds = in_rounds({"off": partial(median_us, off, runs), "on": partial(measure_in_span, on)})
    report.add(*case, *pair_cells(zip(rounds["off"], rounds["on"], strict=True)))


def _secure(folder: Path) -> tuple[Sequence[str], Settings]:
    """Create certificates and a token; return the daemon's flags and the client's settings that use them."""
    certificate, key = Authority(folder / "keys").issue_server("daemon", [HOST], days=1)
    access = folder / "access"
    token = issue_token(folder, access, Identity("name", "alice", Role.COMPILE))
    settings = Settings(tls_ca=str(folder / "keys" / CA), token_file=str(token), share_memory=False)
    return ("--tls-cert", str(certificate), "--tls-key", str(key), "--access", str(access)), settings
