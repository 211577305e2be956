"""All modules that say how operators are imported; they are called as in the other rooms."""

from nnrt_client.onnx_import import (  # noqa: F401
    activation,
    arithmetic,
    convolution,
    creation,
    elementwise,
    indexing,
    linear,
    logic,
    normalization,
    quantization,
    reduction,
    shape,
    spatial,
)
