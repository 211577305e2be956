"""What runs and builds tell of themselves, to whom the settings of a runtime say: OpenTelemetry, or a file."""
