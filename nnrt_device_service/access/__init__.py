"""Identities and rights of clients, and the files that define them."""
