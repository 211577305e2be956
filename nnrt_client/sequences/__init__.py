"""Sequences: values that stay on the device between the runs of a model."""
