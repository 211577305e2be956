"""Interfaces between the daemon and its host: threads, memory, signals, logs, supervisor."""
