"""Optimizations that hold for most graphs."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from wrapping import Progress, WrappedBackend, WrappedModel

from mutants.defect import backend, model
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel
from nnrt_hdi.enums import ActivationType, NodeType
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.tensor import Array

LEVELS = ("graphs",)


class Pass(WrappedBackend):
    """A backend that compiles another graph than the one it was given."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        return super().prepare(self.optimized(graph), config, progress)

    def optimized(self, graph: Graph) -> Graph:
        raise NotImplementedError


def readers(graph: Graph, tensor: int) -> list[Node]:
    """The nodes that read a tensor, in order."""
    return [graph.nodes[at] for at in graph.order if tensor in graph.nodes[at].inputs]


def producer(graph: Graph, tensor: int) -> Node | None:
    return next((node for node in graph.nodes if tensor in node.outputs), None)


def with_nodes(graph: Graph, nodes: Iterable[Node]) -> Graph:
    """The graph with other nodes. Tensors that nobody needs any more go, and the nodes that made only them."""
    left = list(nodes)
    while unread := [node for node in left if not _is_read(graph, left, node)]:
        left = [node for node in left if node not in unread]
    used = {*graph.inputs, *graph.outputs, *(at for node in left for at in (*node.inputs, *node.outputs))}
    place = {tensor: at for at, tensor in enumerate(sorted(used))}

    def moved(tensors: Sequence[int]) -> tuple[int, ...]:
        return tuple(place[tensor] for tensor in tensors)

    return Graph(
        tuple(graph.tensors[tensor] for tensor in sorted(used)),
        tuple(replace(node, inputs=moved(node.inputs), outputs=moved(node.outputs)) for node in left),
        moved(graph.inputs),
        moved(graph.outputs),
        {place[tensor]: constant for tensor, constant in graph.constants.items() if tensor in used},
        graph.name,
    )


def _is_read(graph: Graph, nodes: Sequence[Node], node: Node) -> bool:
    return any(at in graph.outputs or any(at in other.inputs for other in nodes) for at in node.outputs)


def reading(node: Node, old: int, new: int) -> Node:
    """The node with another tensor in the place of one that it reads."""
    return replace(node, inputs=tuple(new if tensor == old else tensor for tensor in node.inputs))


def without(graph: Graph, removed: Node, passed: int) -> Graph:
    """The graph without a node, for whose result a tensor stands that it was made of."""
    (result,) = removed.outputs
    if result in graph.outputs or graph.tensors[result] != replace(
        graph.tensors[passed], name=graph.tensors[result].name
    ):
        return graph
    return with_nodes(graph, [reading(node, result, passed) for node in graph.nodes if node is not removed])


@backend(levels=LEVELS)
class ActivationFusedForAll(Pass):
    """A RELU is fused into the node before it, for all that read that one."""

    def optimized(self, graph: Graph) -> Graph:
        fusable = (NodeType.ADD_FUSION, NodeType.CONV2D_FUSION, NodeType.FULL_CONNECTION, NodeType.MATMUL_FUSION)
        return with_nodes(
            graph,
            [
                replace(node, attrs={**node.attrs, "activation_type": ActivationType.RELU})
                if node.type in fusable and any(map(_is_relu, readers(graph, node.outputs[0])))
                else node
                for node in graph.nodes
            ],
        )


def _is_relu(node: Node) -> bool:
    return node.type is NodeType.ACTIVATION and node.attrs.get("activation_type") == ActivationType.RELU


@backend(levels=LEVELS)
class TransposesComposedTheOtherWay(Pass):
    """Two permutations are made one, in the wrong order."""

    def optimized(self, graph: Graph) -> Graph:
        for node in graph.nodes:
            before = producer(graph, node.inputs[0])
            if node.type is not NodeType.TRANSPOSE or before is None or before.type is not NodeType.TRANSPOSE:
                continue
            first, second = (graph.constants.get(each.inputs[1]) for each in (before, node))
            if first is None or second is None or first.data is None or second.data is None:
                continue
            wrong = second.data.reshape(-1)[first.data.reshape(-1).astype(np.int64)]
            constants = {
                **graph.constants,
                node.inputs[1]: Constant.of(np.ascontiguousarray(wrong.reshape(second.data.shape))),
            }
            other = replace(node, inputs=(before.inputs[0], node.inputs[1]))
            return with_nodes(
                replace(graph, constants=constants), [other if each is node else each for each in graph.nodes]
            )
        return graph


@backend(levels=("quantized", "graphs"))
class QuantizedPairsRemoved(Pass):
    """Where real numbers are quantized and made real again they are left as they are."""

    def optimized(self, graph: Graph) -> Graph:
        casts = (NodeType.QUANT_DTYPE_CAST, NodeType.QUANT_DTYPE_CAST_V2)
        for node in graph.nodes:
            before = producer(graph, node.inputs[0])
            if node.type in casts and before is not None and before.type in casts:
                graph = without(graph, node, before.inputs[0])
                break
        return graph


@backend(levels=LEVELS)
class CastPairsRemoved(Pass):
    """A cast and the one back are left out, though what is between has fewer digits."""

    def optimized(self, graph: Graph) -> Graph:
        for node in graph.nodes:
            before = producer(graph, node.inputs[0])
            if node.type is NodeType.CAST and before is not None and before.type is NodeType.CAST:
                return without(graph, node, before.inputs[0])
        return graph


@backend(levels=LEVELS)
class NormFoldedThroughTheActivation(Pass):
    """A batch norm is folded into the convolution before it, past the activation between them."""

    def optimized(self, graph: Graph) -> Graph:
        none = ActivationType.NO_ACTIVATION
        for node in graph.nodes:
            before = producer(graph, node.inputs[0])
            if node.type is not NodeType.FUSED_BATCH_NORM or before is None:
                continue
            fused = before.attrs.get("activation_type", none)
            if before.type is not NodeType.CONV2D_FUSION or fused == none:
                continue
            between = len(graph.tensors)
            (result,) = node.outputs
            after = Node(NodeType.ACTIVATION, (between,), (result,), {"activation_type": fused})
            changed = {
                id(before): [replace(before, attrs={**before.attrs, "activation_type": none})],
                id(node): [replace(node, outputs=(between,)), after],
            }
            nodes = [made for each in graph.nodes for made in changed.get(id(each), [each])]
            tensors = (*graph.tensors, replace(graph.tensors[result], name=""))
            return Graph(tensors, tuple(nodes), graph.inputs, graph.outputs, graph.constants, graph.name)
        return graph


@backend(levels=LEVELS)
class ConstantsFoldedInPlace(Pass):
    """What follows from constants alone is written over the first of them, whoever else reads it."""

    def optimized(self, graph: Graph) -> Graph:
        constants = dict(graph.constants)
        for node in graph.nodes:
            if node.type not in (NodeType.ADD_FUSION, NodeType.MUL_FUSION) or not constants.keys() >= {*node.inputs}:
                continue
            a, b = (constants[at].data for at in node.inputs)
            if a is not None and b is not None and a.shape == graph.tensors[node.outputs[0]].shape:
                made: Any = np.add(a, b) if node.type is NodeType.ADD_FUSION else np.multiply(a, b)
                constants[node.inputs[0]] = Constant.of(np.ascontiguousarray(made.astype(a.dtype)))
        return graph.with_constants(constants)


@backend(levels=LEVELS)
class MemoryFreedByItsFirstReader(Pass):
    """A result is gone after the first node that reads it; later ones read what was made in its place."""

    def optimized(self, graph: Graph) -> Graph:
        nodes, made = {}, list[int]()
        read_at: dict[int, int] = {}
        for at in graph.order:
            node = graph.nodes[at]
            for tensor in dict.fromkeys(node.inputs):
                if tensor in read_at and producer(graph, tensor) is not None:
                    since = made[read_at[tensor] :]
                    alike = [
                        new
                        for new in since
                        if graph.tensors[new].shape == graph.tensors[tensor].shape
                        and graph.tensors[new].data_type == graph.tensors[tensor].data_type
                    ]
                    node = reading(node, tensor, alike[0]) if alike else node
                else:
                    read_at[tensor] = len(made)
            nodes[at] = node
            made.extend(node.outputs)
        return with_nodes(graph, [nodes[at] for at in range(len(graph.nodes))])


class _Merging(Pass):
    """Has one node in the place of several with the same key."""

    def optimized(self, graph: Graph) -> Graph:
        seen: dict[object, Node] = {}
        nodes = list(graph.nodes)
        for at in graph.order:
            node = nodes[at]
            first = seen.setdefault(self.key(graph, node), node)
            if first is node or len(node.outputs) > 1:
                continue
            (old,), (new,) = node.outputs, first.outputs
            if old not in graph.outputs:
                nodes = [reading(each, old, new) for each in nodes]
        return with_nodes(graph, nodes)

    def key(self, graph: Graph, node: Node) -> object:
        raise NotImplementedError


@backend(levels=LEVELS)
class NodesMergedWithoutAttributes(_Merging):
    """Nodes of one type on the same operands are computed once, whatever their attributes are."""

    def key(self, graph: Graph, node: Node) -> object:
        made = [(graph.tensors[at].data_type, graph.tensors[at].shape) for at in node.outputs]
        return node.type, node.inputs, tuple(made)


@backend(levels=LEVELS)
class NodesMergedInAnyOrder(_Merging):
    """Nodes on the same operands are computed once, whichever operand comes first."""

    def key(self, graph: Graph, node: Node) -> object:
        made = [(graph.tensors[at].data_type, graph.tensors[at].shape) for at in node.outputs]
        return node.type, tuple(sorted(node.inputs)), repr(sorted(node.attrs.items())), tuple(made)


@backend(levels=LEVELS)
class BordersFoldedIntoConvolutions(Pass):
    """A border in front of a convolution becomes its padding, which is 0 whatever the border was."""

    def optimized(self, graph: Graph) -> Graph:
        def folded(node: Node) -> Node:
            after = [reader.type for reader in readers(graph, node.outputs[0])]
            if node.type is NodeType.PAD_FUSION and NodeType.CONV2D_FUSION in after:
                return replace(node, attrs={**node.attrs, "constant_value": 0.0})
            return node

        return with_nodes(graph, [folded(node) for node in graph.nodes])


@backend(levels=LEVELS)
class NodesInTheOrderGiven(Pass):
    """Nodes are computed in the order in which they stand: what isn't there yet is 0."""

    def optimized(self, graph: Graph) -> Graph:
        made = {*graph.inputs, *graph.constants}
        tensors, constants, nodes = list(graph.tensors), dict(graph.constants), []
        for node in graph.nodes:
            for tensor in node.inputs:
                spec = graph.tensors[tensor]
                if tensor not in made and not spec.is_dynamic:
                    node = reading(node, tensor, len(tensors))
                    constants[len(tensors)] = Constant.of(np.zeros(spec.shape, spec.numpy_dtype))
                    tensors.append(spec)
            nodes.append(node)
            made.update(node.outputs)
        return Graph(tuple(tensors), tuple(nodes), graph.inputs, graph.outputs, constants, graph.name)


class _Outputs(WrappedModel):
    """A model of which `given` decides what it gives."""

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        return self.given(self.right.run(self.taken(inputs), cancellation))

    def taken(self, inputs: Sequence[Array]) -> Sequence[Array]:
        return inputs

    def given(self, made: list[Array]) -> list[Array]:
        return made


@model(levels=LEVELS)
class OutputsInTheOrderOfNodes(_Outputs):
    """Outputs come in the order in which they are computed."""

    def given(self, made: list[Array]) -> list[Array]:
        order = self.graph.outputs if self.graph else ()
        return (
            [array for _, array in sorted(zip(order, made, strict=True), key=lambda pair: pair[0])] if order else made
        )


@model(levels=LEVELS)
class InputsInTheOrderOfUse(_Outputs):
    """Inputs are taken in the order in which nodes read them, where they are alike."""

    def taken(self, inputs: Sequence[Array]) -> Sequence[Array]:
        if self.graph is None or len({(array.dtype, array.shape) for array in inputs}) > 1:
            return inputs
        read = [tensor for at in self.graph.order for tensor in self.graph.nodes[at].inputs]
        used = [tensor for tensor in dict.fromkeys(read) if tensor in self.graph.inputs]
        order = [*used, *(tensor for tensor in self.graph.inputs if tensor not in used)]
        return [inputs[order.index(tensor)] for tensor in self.graph.inputs]


@model(levels=LEVELS)
class OutputsThatOthersRead(_Outputs):
    """A result that nodes read is given back as the memory it was in, used for another by then."""

    def given(self, made: list[Array]) -> list[Array]:
        outputs = self.graph.outputs if self.graph else ()
        for tensor, array in zip(outputs, made, strict=False):
            if self.graph and readers(self.graph, tensor):
                array.fill(0)
        return made


@model(levels=LEVELS)
class ConstantsAndInputsNotGiven(_Outputs):
    """An output that no node makes, an input or a constant, is never written."""

    def given(self, made: list[Array]) -> list[Array]:
        outputs = self.graph.outputs if self.graph else ()
        for tensor, array in zip(outputs, made, strict=False):
            if self.graph and producer(self.graph, tensor) is None:
                array.fill(0)
        return made


@model(levels=LEVELS)
class UnreadInputsLeftOut(_Outputs):
    """Inputs that no node reads are dropped, and the others move up."""

    def taken(self, inputs: Sequence[Array]) -> Sequence[Array]:
        if self.graph is None or len({(array.dtype, array.shape) for array in inputs}) > 1:
            return inputs
        graph = self.graph
        unread = [at for at, tensor in enumerate(graph.inputs) if not readers(graph, tensor)]
        moved = iter(inputs)
        return [inputs[at] if at in unread else next(moved) for at in range(len(inputs))]


@backend(levels=("death", "graphs"))
class DepthByRecursion(Pass):
    """The compiler calls itself for what a node reads, and its stack ends at a thousand."""

    def optimized(self, graph: Graph) -> Graph:
        makers = {tensor: node for node in graph.nodes for tensor in node.outputs}

        @cache
        def depth(tensor: int) -> int:
            node = makers.get(tensor)
            return 1 + max(map(depth, node.inputs), default=0) if node else 0

        if len(graph.nodes) > 900:  # Below that nobody would notice.
            max(map(depth, graph.outputs))
        return graph
