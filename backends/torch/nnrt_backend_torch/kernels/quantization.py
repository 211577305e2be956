"""Conversion between real and quantized tensors."""
