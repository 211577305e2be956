"""Reductions of many elements to one."""
