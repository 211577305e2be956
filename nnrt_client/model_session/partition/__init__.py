"""Models of which a device runs a part, and ONNX Runtime the rest, here."""
