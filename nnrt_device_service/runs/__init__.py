"""Runs: from the bytes of a request to those of its reply."""
