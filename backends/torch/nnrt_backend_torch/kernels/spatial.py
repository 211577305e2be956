"""Operators that know the height and width of images: resizing, rearranging, detection.
"""
