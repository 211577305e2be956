"""The operators that ONNX Runtime adds to ONNX's, in the module of their family.

Its quantizer and its optimizers write them. Inputs and attributes are as ONNX Runtime's documentation of its
operators has them (docs/ContribOperators.md).
"""

from nnrt_client.onnx_import.operators.microsoft import (  # noqa: F401  (each module declares its operators)
    activation,
    attention,
    convolution,
    linear,
    normalization,
    quantization,
)
