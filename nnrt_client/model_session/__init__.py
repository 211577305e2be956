"""Model sessions, which load a model file onto a device and run it."""
