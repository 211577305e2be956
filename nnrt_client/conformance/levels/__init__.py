"""The levels of the kit: those that are code, a module each, and the runner of those that are data."""
