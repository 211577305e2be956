"""Sequences: runs whose state stays on the device, and loops of runs that need no client."""
