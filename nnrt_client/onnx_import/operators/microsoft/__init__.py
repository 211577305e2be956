"""Operators that ONNX Runtime adds to ONNX, in a module per family.

ONNX Runtime's quantizer and optimizers write them. Its docs/ContribOperators.md specifies inputs and attributes.
"""

from nnrt_client.onnx_import.operators.microsoft import (  # noqa: F401  (each module declares its operators)
    activation,
    attention,
    convolution,
    grouped_attention,
    linear,
    normalization,
    quantization,
)
