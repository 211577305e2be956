"""Tensors of applications: what they are, and where their elements lie."""
