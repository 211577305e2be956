"""Tensors made from a shape or a range."""
