"""Counters of identities, and the credentials that the daemon issues."""
