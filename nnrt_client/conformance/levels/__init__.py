"""Levels of the kit: one module per level that is code, and the runner of the levels that are data."""
