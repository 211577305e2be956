"""Networks as torch has them, by family, to be exported to ONNX. All weights are random; needs torch."""
