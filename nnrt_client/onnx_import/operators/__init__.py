"""The ONNX operators that are imported, in the module of their family, which is called as in the other rooms.

Operators are declared in the language of `nnrt_client.onnx_import.operators.operator`.
"""

from nnrt_client.onnx_import.operators import (  # noqa: F401  (each module declares its operators)
    activation,
    arithmetic,
    convolution,
    creation,
    elementwise,
    indexing,
    linear,
    logic,
    microsoft,
    normalization,
    quantization,
    reduction,
    shape,
    spatial,
)
