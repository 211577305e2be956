"""Health of a device: its canary and its telemetry."""
