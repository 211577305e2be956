"""Metrics that a daemon exports."""

import re
import ssl
from urllib.request import urlopen

from daemon_process import DaemonProcess
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

LISTEN = ("--metrics-listen", "127.0.0.1:0")
_TIMEOUT_S = 20.0


def metrics_address(daemon: DaemonProcess) -> str:
    """Return the address at which a daemon serves metrics."""
    (address,) = re.findall(r"serving metrics, .*, on (\S+)", daemon.log())
    return str(address)


def scraped(daemon: DaemonProcess, tls: ssl.SSLContext | None = None) -> dict[str, Metric]:
    """Return a daemon's metrics by name."""
    url = f"{'https' if tls else 'http'}://{metrics_address(daemon)}/metrics"
    with urlopen(url, timeout=_TIMEOUT_S, context=tls) as reply:  # noqa: S310
        text = reply.read().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(metrics: dict[str, Metric], name: str, **labels: str) -> float:
    """Return the only sample of this name that has these labels; it may have more."""
    (found,) = (
        sample.value
        for family in metrics.values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
    return float(found)
