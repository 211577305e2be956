"""The daemon's dealings with its host: threads, memory, signals, logs, supervisor."""
