"""Support of nodes by ONNX Runtime: whether it loads them."""

from functools import partial

from nnrt_onnx_lowering import Lowered, NodeSupport
from onnxruntime import GraphOptimizationLevel

from nnrt_backend_onnxruntime.kernels import Kernels
from nnrt_backend_onnxruntime.providers import ProviderDevice
from nnrt_backend_onnxruntime.session import open_session, session_options
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.graph import Graph

# The largest constant output of a node that ONNX Runtime may compute in order to test its support.
MOST_FOLDED_BYTES = 1 << 24


def node_support(device: ProviderDevice, kernels: Kernels) -> NodeSupport:
    """Return the support of nodes by a device."""
    return NodeSupport(kernels, partial(_load, device))


def _load(device: ProviderDevice, nodes: Graph, lowered: Lowered, is_alone: bool) -> None:
    """Load several nodes without optimizations, or a single node with them. Raises NnrtError if that fails."""
    options = session_options(device, ModelConfig())
    options.intra_op_num_threads = 1  # It never runs.
    if not is_alone or any(not spec.is_dynamic and spec.byte_size > MOST_FOLDED_BYTES for spec in nodes.output_specs):
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    open_session(lowered.model.SerializeToString(), lowered.weights, options, device, {})
