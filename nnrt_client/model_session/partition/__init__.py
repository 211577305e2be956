"""Models that a device runs a part of: the rest runs here, in ONNX Runtime."""
