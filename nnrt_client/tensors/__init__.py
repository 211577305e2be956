"""Tensors of applications: descriptions, and memory for the elements."""
