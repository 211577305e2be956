"""Pools: which devices have a model, and which device makes a run."""
