"""Programs: ONNX files that ONNX Runtime runs as they are, with any operator and any dynamic shape.

A client's file may be malicious, so it is checked before ONNX Runtime sees it. `skeleton` checks the model's nodes,
`tensors` where its data are, `sizes` how large its tensors get. `loading` calls them in order.
"""
