"""Checks of the graphs and configs that clients ask to compile."""

from collections import Counter

from nnrt_device_service.sessions.session import CheckedModel
from nnrt_device_service.settings import LimitReached, Settings
from nnrt_hdi.backend import Backend, Capabilities, ModelConfig, Support
from nnrt_hdi.enums import PerformanceMode, Priority
from nnrt_hdi.errors import OperationForbidden, Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import Inference, infer_graph
from nnrt_hdi.tensor import TensorSpec

# Different notes about a model's nodes that the client gets.
_MOST_NOTES = 16


class Checks:
    """Checks of what the device supports, shared by the query `supported` and by compilation, so that both agree."""

    def __init__(self, backend: Backend, capabilities: Capabilities, settings: Settings) -> None:
        self._backend = backend
        self._capabilities = capabilities
        self._most_bytes = settings.tensor_bytes

    def require_config(self, config: ModelConfig) -> None:
        """Raise OperationForbidden for a setting that the device doesn't support."""
        for wanted, offered, what in (
            (config.enable_float16, self._capabilities.float16_precision, "enable_float16"),
            (config.mode is not PerformanceMode.NONE, self._capabilities.performance_mode, "mode"),
            (config.priority is not Priority.NONE, self._capabilities.priority, "priority"),
        ):
            if wanted and not offered:
                raise OperationForbidden(
                    "the device doesn't support it; leave it at its default", place=f"ModelConfig.{what}"
                )

    def check(self, graph: Graph) -> CheckedModel:
        """Return the graph with inferred shapes and data types, and the notes about its nodes.

        Raises the first problem of inference; Unsupported for an input with unknown dimensions or a node that the
        device doesn't support; LimitReached for an output above --tensor-bytes.
        """
        inferred = infer_graph(graph)
        inferred.raise_first_problem()
        known = inferred.graph
        for index in sorted(self._unknown_inputs(known)):
            raise Unsupported(_every_dimension(known.tensors[index]), place=known.tensor_place(index))
        notes: Counter[str] = Counter()
        for index, support in enumerate(self.supported(inferred)):
            if support.supported:
                notes.update([support.note] if support.note else ())
                continue
            if too_large := self._too_large(known, index):
                raise LimitReached(too_large, "--tensor-bytes", place=known.place(index))
            raise Unsupported(support.reason, place=known.place(index))
        return CheckedModel(known, dict(notes.most_common(_MOST_NOTES)))

    def supported(self, inferred: Inference) -> list[Support]:
        """Return an answer per node of the client's graph, which covers the nodes that inference added for it."""
        graph = inferred.graph
        answers = []
        unknown = self._unknown_inputs(graph)
        for index, support in enumerate(self._backend.supported(graph)):
            problem = inferred.problems.get(index)
            reason = problem.message if problem else self._too_large(graph, index)
            if not reason and (of_node := sorted(unknown.intersection(graph.nodes[index].inputs))):
                reason = _every_dimension(graph.tensors[of_node[0]])
            answers.append(Support(reason) if reason else support)
        for added, node in inferred.added.items():
            if answers[node].supported:
                answers[node] = answers[added]
        return answers[: len(answers) - len(inferred.added)]

    def _too_large(self, graph: Graph, node: int) -> str:
        for tensor in graph.nodes[node].outputs:
            spec = graph.tensors[tensor]
            if spec.known_bytes > self._most_bytes:
                return (
                    f"its output {spec} has {spec.byte_size} bytes; the daemon's limit (--tensor-bytes) is"
                    f" {self._most_bytes}"
                )
        return ""

    def _unknown_inputs(self, graph: Graph) -> set[int]:
        """Return the indices of inputs with unknown dimensions, if the device needs all dimensions."""
        takes_any = self._capabilities.dynamic_input
        return {index for index in graph.inputs if graph.tensors[index].is_dynamic and not takes_any}


def _every_dimension(spec: TensorSpec) -> str:
    shape = tuple(max(dim, 1) for dim in spec.shape)
    example = f": {{{spec.name!r}: {shape}}}, --shape {spec.name}={','.join(map(str, shape))}" if spec.name else ""
    return f"it is {spec}; the device needs every dimension of an input, so fix its shape{example}"
