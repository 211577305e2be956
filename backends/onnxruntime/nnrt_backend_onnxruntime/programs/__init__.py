"""ONNX files as clients have them, run by ONNX Runtime as they are: any operator, any dynamic shape.

What comes from a client may be made to do harm, and is checked before ONNX Runtime sees it. `skeleton` checks what the
model consists of, `tensors` where its data are, `sizes` what it may make; `loading` puts them in order.
"""
