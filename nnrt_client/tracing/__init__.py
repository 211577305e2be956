"""Traces of runs and builds, for OpenTelemetry or for a trace file."""
