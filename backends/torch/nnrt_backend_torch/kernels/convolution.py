"""Convolutions and pooling: windows that slide over an image.
"""
