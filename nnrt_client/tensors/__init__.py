"""Tensors of the application interface: their descriptions, and memory for their elements."""
