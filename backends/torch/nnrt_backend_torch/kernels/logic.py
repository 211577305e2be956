"""Comparisons, logic, and choices by a condition."""
