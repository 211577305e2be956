"""Support of nodes by an engine: a node is supported if the engine loads a model of it alone."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from nnrt_hdi.backend import Support
from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import inferred_graph
from nnrt_onnx_lowering.engine import Engine
from nnrt_onnx_lowering.lowered import Lowered, lower
from nnrt_onnx_lowering.lowering import LOWERINGS
from nnrt_onnx_lowering.single_nodes import single_nodes, support_key

# The number of answers that are cached, the latest ones.
MOST_ANSWERS = 4096

# Function that loads the model of these nodes, none of which reads from another, on the engine. The last argument says
# whether it is a single node. The function raises NnrtError if the engine doesn't support the nodes.
Load = Callable[[Graph, Lowered, bool], object]


class NodeSupport:
    """Cache of which nodes an engine supports. Support depends only on the node and its tensors."""

    def __init__(self, engine: Engine, load: Load) -> None:
        self._engine = engine
        self._load = load
        self._known: OrderedDict[bytes, Support] = OrderedDict()

    def of(self, graph: Graph) -> list[Support]:
        """Return the support of each node, as `Backend.supported` returns it."""
        keys = [support_key(graph, index) for index in range(len(graph.nodes))]
        answers = {key: known for key in keys if (known := self._known.get(key))}
        unknown = {key: index for index, key in enumerate(keys) if key not in answers}
        answers.update(zip(unknown, self._load_nodes(graph, list(unknown.values())), strict=True))
        self._known.update(answers)
        while len(self._known) > MOST_ANSWERS:
            self._known.popitem(last=False)
        return [answers[key] for key in keys]

    def _load_nodes(self, graph: Graph, indices: Sequence[int]) -> list[Support]:
        """Load a model of all nodes at once, and of each half if that fails, until a single node gives the reason.

        The nodes don't read from each other. So if they load together, each would load alone.
        """
        if not indices:
            return []
        is_alone = len(indices) == 1
        try:
            nodes = inferred_graph(single_nodes(graph, indices))
            self._load(nodes, lower(nodes, self._engine), is_alone)
        except NnrtError as error:
            if is_alone:
                return [Support(error.message)]
            half = len(indices) // 2
            return self._load_nodes(graph, indices[:half]) + self._load_nodes(graph, indices[half:])
        return [Support(note=self._describe_deviation(graph, index)) for index in indices]

    def _describe_deviation(self, graph: Graph, index: int) -> str:
        """Return a note on how the engine deviates from NNRt for a node that it supports, or "" if it doesn't."""
        node = graph.nodes[index]
        has_halves = any(graph.tensors[at].data_type is DataType.FLOAT16 for at in (*node.inputs, *node.outputs))
        lowering = LOWERINGS.get(node.type)
        is_moved = lowering is not None and lowering.moves
        if not has_halves or is_moved or self._engine.computes_float16:
            return ""
        return "FLOAT16 is computed in FLOAT32, and rounded where it leaves the model"
