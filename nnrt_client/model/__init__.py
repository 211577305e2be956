"""Graphs that an application builds."""
