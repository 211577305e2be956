"""Runs of a prepared model: the executor, and the dispatcher that sends runs to the daemon."""
