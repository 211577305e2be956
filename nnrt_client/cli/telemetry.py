"""Formatting of telemetry, the figures that devices measure of themselves."""

from collections.abc import Mapping

from nnrt_client.cli.printing import format_bytes
from nnrt_hdi.backend import Telemetry


def format_telemetry(telemetry: Telemetry) -> Mapping[str, str]:
    """Return the figures that a device reports as texts, by column title."""
    texts: dict[str, str] = {}
    if telemetry.utilization is not None:
        texts["device util"] = f"{100 * telemetry.utilization:.0f} %"
    if telemetry.temperature_celsius is not None:
        texts["temp"] = f"{telemetry.temperature_celsius:.0f} °C"
    if telemetry.power_watts is not None:
        texts["power"] = f"{telemetry.power_watts:.{0 if telemetry.power_watts >= 10 else 1}f} W"
    if telemetry.memory_used_bytes is not None:
        total = telemetry.memory_total_bytes
        of_total = "" if total is None else f" of {format_bytes(total)}"
        texts["device memory"] = f"{format_bytes(telemetry.memory_used_bytes)}{of_total}"
    if telemetry.clock_hertz is not None:
        texts["clock"] = f"{telemetry.clock_hertz / 1e6:,.0f} MHz"
    return texts
