"""Networks of several families in torch, to be exported to ONNX. All weights are random; needs torch."""
