"""Pools: they choose which devices load a model, and which device makes each run."""
