"""The device, and the runs on it."""
