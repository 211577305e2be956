"""Operators, one for each NodeType: operands, attributes, constraints, and the shape and data type of the outputs.

Each operator is declared in the module of its family, as `nnrt_hdi.ops.operator` describes.
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
