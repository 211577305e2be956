"""What a daemon counts, for Prometheus."""
