"""Runs of a prepared model: executors, and the dispatcher that sends their runs over the links of a session."""
