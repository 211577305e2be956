"""Traces of runs and builds: for OpenTelemetry, or in a file."""
