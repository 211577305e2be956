"""Metrics of a daemon for Prometheus."""
