"""Models in parts, of which a device runs some, and ONNX Runtime in this process the others."""
