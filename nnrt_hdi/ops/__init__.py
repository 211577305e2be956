"""The operators, one for each NodeType: operands, attributes, constraints, and the shape and data type of its outputs.

Operators are declared in the module of their family, in the language of `nnrt_hdi.ops.operator`.
"""

from nnrt_hdi.ops import (  # noqa: F401  (each module declares its operators)
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
from nnrt_hdi.ops.inference import Inference, infer_graph, infer_node, inferred_graph
from nnrt_hdi.ops.operator import OPERATORS, Operator
from nnrt_hdi.ops.run_sizes import RunKinds, RunSizes, require_fits, sizes_of

__all__ = [
    "OPERATORS",
    "Inference",
    "Operator",
    "RunKinds",
    "RunSizes",
    "infer_graph",
    "infer_node",
    "inferred_graph",
    "require_fits",
    "sizes_of",
]
