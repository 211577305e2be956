"""Levels of the kit: the checks of each level, and the runner of cases."""
