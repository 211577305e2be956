"""ONNX Runtime itself says what it takes: a node by itself either loads or it doesn't."""

from collections import OrderedDict
from collections.abc import Sequence

from onnxruntime import GraphOptimizationLevel

from nnrt_backend_onnxruntime.kernels import Kernels
from nnrt_backend_onnxruntime.processor import IntegerKernels
from nnrt_backend_onnxruntime.program import lower
from nnrt_backend_onnxruntime.providers import ProviderDevice
from nnrt_backend_onnxruntime.session import open_session, session_options
from nnrt_backend_onnxruntime.single_nodes import key_of, single_nodes
from nnrt_hdi.backend import ModelConfig, Support
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import inferred_graph

# Answers about nodes that are kept, the latest ones.
MOST_ANSWERS = 4096
# The largest output of a node that ONNX Runtime may compute, if it is constant, to answer whether it can.
MOST_FOLDED_BYTES = 1 << 24


class NodeSupport:
    """Answers about nodes, which are kept: an answer depends on nothing but the node and its tensors."""

    def __init__(self, device: ProviderDevice, kernels: Kernels, integers: IntegerKernels) -> None:
        self._device = device
        self._kernels = kernels
        self._integers = integers
        self._known: OrderedDict[bytes, Support] = OrderedDict()

    def of(self, graph: Graph) -> list[Support]:
        """Per node, whether it loads by itself."""
        keys = [key_of(graph, index) for index in range(len(graph.nodes))]
        answers = {key: known for key in keys if (known := self._known.get(key))}
        unknown = {key: index for index, key in enumerate(keys) if key not in answers}
        answers.update(zip(unknown, self._ask(graph, list(unknown.values())), strict=True))
        self._known.update(answers)
        while len(self._known) > MOST_ANSWERS:
            self._known.popitem(last=False)
        return [answers[key] for key in keys]

    def _ask(self, graph: Graph, indices: Sequence[int]) -> list[Support]:
        """Ask about all at once: they don't read from each other, so if they load together each does by itself. Where
        they don't, ask about halves, until a single one says why."""
        if len(indices) <= 1:
            return [self._alone(graph, index) for index in indices]
        try:
            self._load(single_nodes(graph, indices), is_optimized=False)
        except NnrtError:
            half = len(indices) // 2
            return self._ask(graph, indices[:half]) + self._ask(graph, indices[half:])
        return [Support()] * len(indices)

    def _alone(self, graph: Graph, index: int) -> Support:
        try:
            self._load(single_nodes(graph, [index]), is_optimized=True)
        except NnrtError as error:
            return Support(error.message)
        return Support()

    def _load(self, nodes: Graph, is_optimized: bool) -> None:
        """Load nodes; as they are, or with optimizations if they load so. Raises NnrtError for what doesn't load."""
        nodes = inferred_graph(nodes)
        lowered = lower(nodes, self._kernels, self._integers, half_kernels=not self._device.is_cpu)
        options = session_options(self._device, ModelConfig(), self._integers.entries)
        options.intra_op_num_threads = 1  # None of them is run.
        if not is_optimized or any(
            not spec.is_dynamic and spec.byte_size > MOST_FOLDED_BYTES for spec in nodes.output_specs
        ):
            options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
        open_session(lowered.model.SerializeToString(), lowered.weights, options, self._device, {})
