"""The operators, one for each NodeType: operands, attributes, constraints, and the shape and data type of its outputs.

Operators are declared in the module of their family, in the language of `nnrt_hdi.ops.operator`.
"""

from nnrt_hdi.ops.families import FAMILIES, family_modules
from nnrt_hdi.ops.inference import Inference, infer_graph, infer_node, inferred_graph
from nnrt_hdi.ops.operator import OPERATORS, Operator
from nnrt_hdi.ops.run_sizes import KnownTensors, RunKinds, require_fits, sizes_of
from nnrt_hdi.ops.shape_numbers import decided_graph, late_nodes

family_modules(__name__)

__all__ = [
    "FAMILIES",
    "OPERATORS",
    "Inference",
    "KnownTensors",
    "Operator",
    "RunKinds",
    "decided_graph",
    "family_modules",
    "infer_graph",
    "infer_node",
    "inferred_graph",
    "late_nodes",
    "require_fits",
    "sizes_of",
]
