"""Fixtures: OpenTelemetry's SDK in the tests' process, set up like an application does."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tracing.spans import Tree, in_file, in_memory


@pytest.fixture(scope="session")
def exporter() -> Iterator[InMemorySpanExporter]:
    """Exporter of the process' tracer provider, which can be set only once."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield exporter
    provider.shutdown()


Spans = Callable[[], Tree]


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Spans:
    """Return a function that returns the spans of this process since the test began."""
    exporter.clear()
    return lambda: Tree(*in_memory(exporter.get_finished_spans()))


@pytest.fixture
def span_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File to which daemons write their spans."""
    path = tmp_path / "spans.jsonl"
    monkeypatch.setenv("SPAN_FILE", str(path))
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "file")
    return path


@pytest.fixture
def traced_daemon(start_daemon: StartDaemon, span_path: Path) -> DaemonProcess:
    """Daemon that records spans; a run takes 50 ms."""
    return start_daemon("--traces", "--backend", "steady", "--option", "seconds=0.05")


def all_spans(here: Tree, daemon: DaemonProcess, path: Path) -> Tree:
    """End a daemon, and return its spans together with this process'."""
    daemon.process.terminate()
    assert daemon.wait() == 0
    return Tree(*here, *in_file(path))
