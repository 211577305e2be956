"""Threads and memory that the host gives the daemon, and the limits on them."""
