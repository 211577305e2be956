"""Table of a daemon's metrics, made from what its collector exports."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner
from nnrt_backend_reference import create
from prometheus_client.metrics_core import Metric

from nnrt_device_service.cli import main as nnrt_device
from nnrt_device_service.device import Device
from nnrt_device_service.metrics import collector
from nnrt_device_service.metrics.families import Families
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import CanaryState, Telemetry


def metrics() -> str:
    """Return one row for each metric: name, type, labels, meaning."""
    rows = (_row(metric) for metric in sorted(_families(), key=lambda metric: metric.name))
    return "\n".join(["| metric | type | labels | meaning |", "|---|---|---|---|", *rows])


def _row(metric: Metric) -> str:
    suffix = {"counter": "_total", "info": "_info"}.get(metric.type, "")
    labels = dict.fromkeys(label for sample in metric.samples for label in sample.labels)
    shown = ", ".join(f"`{label}`" for label in labels if label not in ("device", "le"))
    return f"| `{metric.name}{suffix}` | {metric.type} | {shown} | {metric.documentation} |"


def _families() -> Iterator[Metric]:
    """Yield the metrics of all devices, and then those that only some devices have."""
    with tempfile.TemporaryDirectory() as folder:
        CliRunner().invoke(nnrt_device, ["keys", "server", folder, "--host", "localhost"], catch_exceptions=False)
        device = Device(create({}), Settings())
        yield from collector.DeviceCollector(device, Path(folder) / "localhost.pem", by_identity=False).collect()
        some = Families(device.info.device_name)
        collector.DeviceCollector(device, None, by_identity=False)._add_canary(some, CanaryState())
        collector._add_telemetry(some, Telemetry(1.0, 1.0, 1, 1, 1, 1.0))
        yield from some
