"""Spans of runs and builds, in real processes, as the SDK's own exporters get them."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from numpy.typing import NDArray
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from waiting import until

from nnrt_client import Compilation, DataType, Executor, Pool, Runtime, Settings, Tensor, TensorDesc
from nnrt_client.run.traced_run import TracedRun
from nnrt_client.session.device import session_of
from nnrt_client.tracing.open_telemetry import ALONE_PER_S
from nnrt_hdi.errors import InvalidParameter, NnrtError, UnavailableDevice
from tracing.conftest import Spans, all_spans
from tracing.spans import in_file

TRACED = Settings(trace=True)
ONE = [np.ones(1, np.float32)]
DEADLINE_S = 30.0


def application() -> AbstractContextManager[trace.Span]:
    """A span of the application, which is current in the block."""
    return trace.get_tracer("application").start_as_current_span("application")


def _error_of(executor: Executor, given: NDArray[Any]) -> Exception | None:
    try:
        executor.run_sync([given])
    except NnrtError as error:
        return error
    return None


def built(runtime: Runtime) -> Executor:
    compilation = Compilation(identity_model(), runtime.device())
    compilation.build()
    executor = Executor(compilation)
    compilation.close()
    return executor


@pytest.mark.parametrize("share_memory", [True, False], ids=["local socket", "gRPC"])
def test_the_client_alone(start_daemon: StartDaemon, spans: Spans, share_memory: bool) -> None:
    """A daemon without traces tells of its times, and the client makes spans of them."""
    daemon = start_daemon("--backend", "steady", "--option", "seconds=0.05")
    settings = Settings(trace=True, share_memory=share_memory)
    with Runtime([daemon.address], settings) as runtime, built(runtime) as executor, application():
        executor.run_sync(ONE)
    tree = spans()
    tree.require_sound()
    run, device = tree.the("nnrt.run"), tree.the("nnrt.device.run")
    assert tree.parent_of(run).name == "application"
    assert run.kind == "SpanKind.CLIENT"
    tree.require_whole(run)
    tree.require_whole(device)
    assert tree.parent_of(device) == run
    assert tree.parent_of(tree.the("nnrt.computed")) == device
    assert tree.the("nnrt.computed").took_ns >= 50e6
    assert run.attributes["server.address"] == daemon.address
    assert run.attributes["nnrt.device"] == "steady"
    assert (run.attributes["nnrt.input_bytes"], run.attributes["nnrt.output_bytes"]) == (4, 4)
    assert (run.attributes["nnrt.result"], run.status) == ("SUCCESS", "UNSET")


@pytest.mark.parametrize("share_memory", [True, False], ids=["local socket", "gRPC"])
def test_outputs_in_tensors(shared_daemon: DaemonProcess, spans: Spans, share_memory: bool) -> None:
    """Their lengths are told as those of arrays."""
    settings = Settings(trace=True, share_memory=share_memory)
    with Runtime([shared_daemon.address], settings) as runtime, built(runtime) as executor, application():
        (output,) = executor.run_sync(ONE)
        with Tensor(runtime.device(), TensorDesc(DataType.FLOAT32, list(output.shape))) as target:
            executor.run_sync(ONE, [target])
            assert np.array_equal(target.numpy(), output)
    assert len(spans().named("nnrt.run")) == 2


@pytest.mark.parametrize("share_memory", [True, False], ids=["local socket", "gRPC"])
def test_two_processes(traced_daemon: DaemonProcess, span_path: Path, spans: Spans, share_memory: bool) -> None:
    settings = Settings(trace=True, share_memory=share_memory)
    with Runtime([traced_daemon.address], settings) as runtime, built(runtime) as executor, application():
        futures = [executor.submit(ONE) for _ in range(3)]
        executor.run_sync(ONE)
        wait(futures, DEADLINE_S)
    here = spans()
    assert not here.named("nnrt.device.run"), "the daemon makes it"
    tree = all_spans(here, traced_daemon, span_path)
    tree.require_sound()
    runs = tree.named("nnrt.run")
    assert len(runs) == 4
    for run in runs:
        tree.require_whole(run)
        (device,) = (child for child in tree.children_of(run) if child.name == "nnrt.device.run")
        assert device.kind == "SpanKind.SERVER"
        tree.require_whole(device)
        for name in ("nnrt.device", "nnrt.session", "nnrt.run", "nnrt.model"):
            assert device.attributes[name] == run.attributes[name]
        assert "nnrt.identity" in device.attributes


def test_builds(traced_daemon: DaemonProcess, span_path: Path, spans: Spans) -> None:
    with Runtime([traced_daemon.address], TRACED) as runtime:
        runtime.device()
        with application():
            built(runtime).close()
    tree = all_spans(spans(), traced_daemon, span_path)
    tree.require_sound()
    build = tree.the("nnrt.build")
    assert tree.parent_of(build).name == "application"
    assert {"nnrt.checking", "nnrt.compiling"} <= {child.name for child in tree.children_of(build)}
    there, here = sorted(tree.named("nnrt_hdi.v2.NnrtDevice/PrepareModel"), key=lambda span: span.kind)[::-1]
    assert (there.kind, here.kind) == ("SpanKind.SERVER", "SpanKind.CLIENT")
    assert tree.parent_of(there) == here
    assert tree.parent_of(here) == build


def test_what_is_not_sampled(traced_daemon: DaemonProcess, span_path: Path, spans: Spans) -> None:
    """The daemon does as the client has decided."""
    unsampled = NonRecordingSpan(SpanContext(1 << 100, 1 << 50, is_remote=True, trace_flags=TraceFlags(0)))
    with Runtime([traced_daemon.address], TRACED) as runtime, trace.use_span(unsampled), built(runtime) as executor:
        executor.run_sync(ONE)
    assert not list(all_spans(spans(), traced_daemon, span_path))


@pytest.mark.slow
def test_runs_that_are_part_of_nothing(shared_daemon: DaemonProcess, spans: Spans) -> None:
    """Those of one second have spans, and later ones as many per second; those of an application's span all have."""
    many = 3 * ALONE_PER_S
    with Runtime([shared_daemon.address], TRACED) as runtime, built(runtime) as executor:
        began = time.monotonic()
        for _ in range(many):
            executor.run_sync(ONE)
        took_s = time.monotonic() - began
    assert ALONE_PER_S <= len(spans().named("nnrt.run")) <= min(ALONE_PER_S * (1 + took_s) + 1, many)
    more = ALONE_PER_S + 20
    with Runtime([shared_daemon.address], TRACED) as runtime, built(runtime) as executor, application():
        for _ in range(more):
            executor.run_sync(ONE)
    tree = spans()
    assert len(tree.children_of(tree.the("application"))) == more


def test_an_error_of_the_caller(shared_daemon: DaemonProcess, spans: Spans) -> None:
    with Runtime([shared_daemon.address], TRACED) as runtime, built(runtime) as executor:
        assert isinstance(_error_of(executor, np.ones((1, 1), np.float32)), InvalidParameter)
    run = spans().the("nnrt.run")
    assert (run.status, run.attributes["nnrt.result"]) == ("ERROR", "INVALID_PARAMETER")
    (event,) = run.events
    assert event["attributes"]["exception.type"] == "InvalidParameter"
    assert "the model takes FLOAT32[?]" in event["attributes"]["exception.message"]


def test_an_error_in_the_daemon(start_daemon: StartDaemon, span_path: Path, spans: Spans) -> None:
    """The daemon's span has it as well."""
    daemon = start_daemon("--traces", "--backend", "slow")
    with Runtime([daemon.address], TRACED) as runtime, built(runtime) as executor:
        future = executor.submit(ONE, timeout_ms=50)
        assert future.exception(DEADLINE_S) is not None
    tree = all_spans(spans(), daemon, span_path)
    run, device = tree.the("nnrt.run"), tree.the("nnrt.device.run")
    assert tree.parent_of(device) == run
    assert run.status == device.status == "ERROR"
    assert run.attributes["nnrt.result"] == "TIMEOUT"
    # Its deadline is over there at about the same time as here, from where it is told to stop then.
    assert device.attributes["nnrt.result"] in ("TIMEOUT", "FAILED")


def test_an_error_that_the_log_has(start_daemon: StartDaemon, tmp_path: Path, spans: Spans) -> None:
    """The span leads there."""
    daemon = start_daemon("--backend", "paced", "--option", f"file={tmp_path / 'missing'}")
    with Runtime([daemon.address], TRACED) as runtime, built(runtime) as executor:
        assert isinstance(_error_of(executor, ONE[0]), UnavailableDevice)
    request = spans().the("nnrt.run").attributes["nnrt.request"]
    assert request in daemon.log()


def test_a_daemon_that_dies(start_daemon: StartDaemon, span_path: Path, spans: Spans) -> None:
    """The run's span ends with its death."""
    daemon = start_daemon("--traces", "--backend", "slow")
    with Runtime([daemon.address], TRACED) as runtime, built(runtime) as executor:
        future = executor.submit(ONE)
        until(lambda: "run started" in daemon.log())
        daemon.send(signal.SIGKILL)
        with pytest.raises(UnavailableDevice):
            future.result(DEADLINE_S)
    run = spans().the("nnrt.run")
    assert (run.status, run.attributes["nnrt.result"]) == ("ERROR", "UNAVAILABLE_DEVICE")
    assert "nnrt.device.run" not in {span.name for span in in_file(span_path)}


@pytest.mark.parametrize("submits", [False, True])
def test_attempts_of_a_pool(start_daemon: StartDaemon, tmp_path: Path, spans: Spans, submits: bool) -> None:
    """The first one's daemon dies; the second is made in another thread, but in the same trace."""
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.write_text("60")
    daemons = [start_daemon("--name", file.name, "--backend", "paced", "--option", f"file={file}") for file in files]
    addresses = [daemon.address for daemon in daemons]
    with Pool(addresses, settings=TRACED) as pool, pool.load(identity_model(), cache=False) as session:

        def run() -> None:
            with application():
                (session.submit(ONE).result(DEADLINE_S) if submits else session.run(ONE))

        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(run)
            first = until(lambda: next((each for each in daemons if "run started" in each.log()), None))
            assert first is not None
            files[1 - daemons.index(first)].write_text("0")
            first.kill()
            running.result(DEADLINE_S)
    tree = spans()
    pooled = tree.the("nnrt.pool.run")
    assert tree.parent_of(pooled).name == "application"
    failed, succeeded = tree.children_of(pooled)
    assert failed.name == succeeded.name == "nnrt.run"
    assert failed.status == "ERROR"
    # The latter where the pool gives the model up before the run has learned of the death.
    assert failed.attributes["nnrt.result"] in ("UNAVAILABLE_DEVICE", "FAILED")
    assert (succeeded.attributes["nnrt.result"], pooled.status) == ("SUCCESS", "UNSET")
    assert failed.attributes["nnrt.device"] != succeeded.attributes["nnrt.device"]


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "nonsense",
        "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "0" * 16 + "-01",
        "ff-" + "1" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "x" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "1" * 16 + "-01" + "-" * 100_000,
        "\n" * 55,
    ],
)
def test_a_traceparent_that_makes_no_sense(
    traced_daemon: DaemonProcess, span_path: Path, monkeypatch: pytest.MonkeyPatch, traceparent: str, spans: Spans
) -> None:
    """The run is made as any, and has no span."""
    monkeypatch.setattr("nnrt_client.tracing.open_telemetry.traceparent_of", lambda span: traceparent)
    settings = Settings(trace=True, share_memory=False)
    with Runtime([traced_daemon.address], settings) as runtime, built(runtime) as executor:
        np.testing.assert_array_equal(executor.run_sync(ONE)[0], ONE[0])
    traced_daemon.process.terminate()
    assert traced_daemon.wait() == 0
    assert "nnrt.device.run" not in {span.name for span in in_file(span_path)}


def test_off(shared_daemon: DaemonProcess, spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is on the way of a run."""
    with Runtime([shared_daemon.address]) as runtime, built(runtime) as executor:
        assert session_of(runtime.device()).tracer is None
        monkeypatch.delattr(TracedRun, "__init__")
        executor.run_sync(ONE)
        assert not [thread.name for thread in threading.enumerate() if "traces" in thread.name]
    assert not list(spans())


def test_the_environment_turns_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, is_on in (("1", True), ("0", False), ("", False)):
        monkeypatch.setitem(os.environ, "NNRT_TRACE", value)
        assert Settings().trace == is_on


def test_without_open_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(InvalidParameter, match=r"pip install 'nnrt\[tracing\]'"):
        Settings(trace=True)


def test_an_exporter_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, start_daemon: StartDaemon) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    with pytest.raises(RuntimeError, match="no exporter 'zipkin' is installed for OTEL_TRACES_EXPORTER; there is"):
        start_daemon("--traces")
