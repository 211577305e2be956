"""What is known of a device besides its runs: the answers of its canary, and its telemetry."""
