"""Decision which nodes of a graph run on a device, which in the client, and why."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from nnrt_client.model.model import Model, parts_of
from nnrt_client.model_session.partition.fallback import SMALLEST_PART
from nnrt_client.model_session.partition.grouping import group_nodes
from nnrt_client.onnx_import.cut import OnnxGraph, PartProto
from nnrt_client.onnx_import.importer import attempt_import
from nnrt_client.session.device import Device
from nnrt_hdi.errors import InvalidParameter, OperationForbidden, Unsupported

# Operators of which one is enough for a part to run on the device.
HEAVY = frozenset(
    """
    Attention Conv ConvInteger ConvTranspose DeformConv Einsum GRU Gemm LSTM MatMul MatMulInteger QLinearConv
    QLinearMatMul RNN
    com.microsoft.Attention com.microsoft.DynamicQuantizeLSTM com.microsoft.DynamicQuantizeMatMul
    com.microsoft.FusedConv com.microsoft.FusedGemm com.microsoft.FusedMatMul com.microsoft.MatMulIntegerToFloat
    com.microsoft.MatMulNBits com.microsoft.MultiHeadAttention com.microsoft.QAttention com.microsoft.QGemm
    """.split()  # noqa: SIM905  (one name a line would take a page)
)


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes that run together, with their inputs and outputs, and a model if they run on the device."""

    nodes: tuple[int, ...]
    proto: PartProto
    model: Model | None = None

    @property
    def inputs(self) -> list[str]:
        return [info.name for info in self.proto.graph.input]

    @property
    def outputs(self) -> list[str]:
        return [info.name for info in self.proto.graph.output]


@dataclass(frozen=True, slots=True)
class Placement:
    """Parts of a graph in the order of their computation, and, by node, the reason why it runs in the client."""

    parts: list[Part]
    reasons: dict[int, str]


def place_parts(graph: OnnxGraph, device: Device, smallest_part: int = SMALLEST_PART) -> Placement:
    """Cut a graph into the largest parts that the device runs, and parts for the client in between.

    A node can run on the device if it can be imported together with the nodes around it, and the device takes all
    operators that it becomes. A part does run there if it has one of the HEAVY operators, or at least `smallest_part`
    operators with results that aren't integers: a smaller part would gain less than its transfers cost. Raises
    Unsupported if no part runs there.
    """
    return _Placing(graph, device, smallest_part).run()


class _Placing:
    def __init__(self, graph: OnnxGraph, device: Device, smallest_part: int) -> None:
        self._graph = graph
        self._device = device
        self._smallest_part = smallest_part
        self._index = {id(node.proto): at for at, node in enumerate(graph.nodes)}
        # Why nodes run in the client.
        self._reasons: dict[int, str] = {}
        self._models: dict[tuple[int, ...], Model] = {}

    def run(self) -> Placement:
        """Move nodes to the client until the device runs all the others, in parts that are large enough."""
        while True:
            parts, constants = self._parts()
            refused = self._find_refused(parts)
            if not refused:
                parts = [replace(part, model=self._models.get(part.nodes)) for part in parts]
                refused = self._find_too_small(parts)
            if not refused:
                break
            self._reasons |= refused
        if not any(part.model for part in parts):
            listed = "".join(f"\n  {reason}" for reason in dict.fromkeys(self._reasons.values()))
            raise Unsupported(f"{self._device.name} runs no part of it that is worth the trip:{listed}")
        return Placement(parts, {at: reason for at, reason in self._reasons.items() if at not in constants})

    def _parts(self) -> tuple[list[Part], set[int]]:
        """Return the parts for the present choice of nodes, and the constant nodes.

        Each part that reads a constant node computes it itself.
        """
        graph = self._graph
        constants = graph.constants(self._reasons)
        before = [
            () if at in constants else {graph.writer[name] for name in node.reads if name in graph.writer} - constants
            for at, node in enumerate(graph.nodes)
        ]
        for at, node in enumerate(graph.nodes):
            if at not in constants and at not in self._reasons:
                self._keep_unsendable_in_client(at, node.reads, constants)
        kinds = [None if at in constants else at not in self._reasons for at in range(len(graph.nodes))]
        readers: dict[str, set[int]] = {name: {-1} for name in graph.outputs}
        for at, node in enumerate(graph.nodes):
            for name in node.reads if at not in constants else ():
                readers.setdefault(name, set()).add(at)
        parts = []
        for nodes in group_nodes(before, kinds):
            given = [
                name for at in nodes for name in graph.nodes[at].writes if readers.get(name, set()).difference(nodes)
            ]
            proto = graph.part(nodes, given, constants)
            parts.append(Part(tuple(nodes), proto))
        fixed = [name for name in graph.outputs if graph.writer.get(name, -1) in constants or graph.is_weight(name)]
        if fixed:
            parts.append(Part((), graph.part((), fixed, constants)))
        return parts, constants

    def _keep_unsendable_in_client(self, at: int, reads: Iterable[str], constants: Collection[int]) -> None:
        """Move a node to the client if it reads a value that can't be sent to the device."""
        graph = self._graph
        for name in reads:
            writer = graph.writer.get(name)
            is_sent = graph.is_input(name) or (writer is not None and writer in self._reasons)
            if is_sent and writer not in constants and graph.spec(name) is None:
                self._reasons[at] = f"{self._place(at)}: {name!r}, which it reads, is no tensor of known type and rank"

    def _find_refused(self, parts: Iterable[Part]) -> dict[int, str]:
        """Return the nodes that prevent their parts from running on the device; store the models of the other parts."""
        refused: dict[int, str] = {}
        for part in parts:
            if part.nodes and part.nodes not in self._models and part.nodes[0] not in self._reasons:
                refused |= self._judge(part)
        return refused

    def _judge(self, part: Part) -> dict[int, str]:
        try:
            attempt = attempt_import(self._graph.file.part(part.proto))
        except (InvalidParameter, OperationForbidden, Unsupported) as error:
            return dict.fromkeys(part.nodes, str(error))
        if attempt.model is None:
            return self._blame(part, attempt.problems)
        answers = attempt.model.supported_operations(self._device)
        named = [
            (owner, f"{self._device.name}: {parts_of(attempt.model).graph.place(at)}: {answer.reason}")
            for at, (owner, answer) in enumerate(zip(attempt.owners, answers, strict=True))
            if not answer.supported
        ]
        if not named:
            self._models[part.nodes] = attempt.model
        return self._blame(part, named)

    def _blame(self, part: Part, problems: Iterable[tuple[object, str]]) -> dict[int, str]:
        """Return the nodes that cause the problems, each with its problem."""
        graph = self._graph
        nodes = [self._index[id(proto)] for proto in part.proto.graph.node]
        blamed: dict[int, str] = {}
        for owner, text in problems:
            if not isinstance(owner, str):
                found = [] if owner is None else [self._index[id(owner)]]
            elif graph.writer.get(owner) in nodes:
                found = [graph.writer[owner]]
            else:
                found = [at for at in nodes if owner in graph.nodes[at].reads]
            blamed |= {at: text for at in found or part.nodes if at not in blamed}
        return blamed

    def _find_too_small(self, parts: Iterable[Part]) -> dict[int, str]:
        small: dict[int, str] = {}
        for part in parts:
            size = sum(not all(map(self._graph.is_integer, self._graph.nodes[at].writes)) for at in part.nodes)
            is_heavy = any(self._graph.nodes[at].type in HEAVY for at in part.nodes)
            if part.model is not None and not is_heavy and size < self._smallest_part:
                ends = " to ".join(dict.fromkeys(self._place(at) for at in (part.nodes[0], part.nodes[-1])))
                reason = (
                    f"{ends}: {self._device.name} runs it, but what computes little is not worth the trip:"
                    f" it has {size} such operators, and smallest_part is {self._smallest_part}"
                )
                small |= dict.fromkeys(part.nodes, reason)
        return small

    def _place(self, at: int) -> str:
        node = self._graph.nodes[at]
        return f"{node.type} node {node.name!r}"


def count_operators(graph: OnnxGraph, nodes: Iterable[int]) -> Mapping[str, int]:
    """Return how many nodes there are of each operator."""
    counts: dict[str, int] = {}
    for at in nodes:
        counts[graph.nodes[at].type] = counts.get(graph.nodes[at].type, 0) + 1
    return counts
