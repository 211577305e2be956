"""Normalization: values brought to a common scale."""
