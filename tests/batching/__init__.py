"""Runs of several clients that daemons compute together."""
