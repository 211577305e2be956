"""Runs of a prepared model: the executor, the queue of a session, and what carries them to the daemon."""
