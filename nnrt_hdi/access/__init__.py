"""Identities and rights of callers, and the files that define them."""
