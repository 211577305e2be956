"""Runs, from the bytes of a request to the bytes of its reply."""
