"""Graph optimizations that are wrong for some graphs."""

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
    """Backend that compiles another graph than it was given."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        return super().prepare(self.optimized(graph), config, progress)

    def optimized(self, graph: Graph) -> Graph:
        raise NotImplementedError


def readers(graph: Graph, tensor: int) -> list[Node]:
    """Return the nodes that read a tensor, in order."""
    return [graph.nodes[at] for at in graph.order if tensor in graph.nodes[at].inputs]


def producer(graph: Graph, tensor: int) -> Node | None:
    return next((node for node in graph.nodes if tensor in node.outputs), None)


def with_nodes(graph: Graph, nodes: Iterable[Node]) -> Graph:
    """Return the graph with other nodes, without unused nodes and tensors."""
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
    """Return the node with one of its inputs replaced."""
    return replace(node, inputs=tuple(new if tensor == old else tensor for tensor in node.inputs))


def without(graph: Graph, removed: Node, passed: int) -> Graph:
    """Return the graph without a node, whose readers then read the tensor `passed` instead."""
    (result,) = removed.outputs
    if result in graph.outputs or graph.tensors[result] != replace(
        graph.tensors[passed], name=graph.tensors[result].name
    ):
        return graph
    return with_nodes(graph, [reading(node, result, passed) for node in graph.nodes if node is not removed])


@backend(levels=LEVELS)
class ActivationFusedForAll(Pass):
    """A RELU is fused into the node before it, although other nodes read that node's result."""

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
    """Two transposes are merged into one in the wrong order."""

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
    """A quantization and the dequantization after it are removed, with their rounding."""

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
    """A cast and the cast back are removed, although the type between is less precise."""

    def optimized(self, graph: Graph) -> Graph:
        for node in graph.nodes:
            before = producer(graph, node.inputs[0])
            if node.type is NodeType.CAST and before is not None and before.type is NodeType.CAST:
                return without(graph, node, before.inputs[0])
        return graph


@backend(levels=LEVELS)
class NormFoldedThroughTheActivation(Pass):
    """A batch normalization is folded into the convolution before it, across an activation."""

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
    """Constant folding overwrites the first constant, which other nodes may read."""

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
    """A result is overwritten after the first node that reads it."""

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
    """Pass that merges nodes with the same key."""

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
    """Nodes of one type with the same operands are merged, whatever their attributes."""

    def key(self, graph: Graph, node: Node) -> object:
        made = [(graph.tensors[at].data_type, graph.tensors[at].shape) for at in node.outputs]
        return node.type, node.inputs, tuple(made)


@backend(levels=LEVELS)
class NodesMergedInAnyOrder(_Merging):
    """Nodes with the same operands in another order are merged."""

    def key(self, graph: Graph, node: Node) -> object:
        made = [(graph.tensors[at].data_type, graph.tensors[at].shape) for at in node.outputs]
        return node.type, tuple(sorted(node.inputs)), repr(sorted(node.attrs.items())), tuple(made)


@backend(levels=LEVELS)
class BordersFoldedIntoConvolutions(Pass):
    """PAD_FUSION before a convolution always pads with 0."""

    def optimized(self, graph: Graph) -> Graph:
        def folded(node: Node) -> Node:
            after = [reader.type for reader in readers(graph, node.outputs[0])]
            if node.type is NodeType.PAD_FUSION and NodeType.CONV2D_FUSION in after:
                return replace(node, attrs={**node.attrs, "constant_value": 0.0})
            return node

        return with_nodes(graph, [folded(node) for node in graph.nodes])


@backend(levels=LEVELS)
class NodesInTheOrderGiven(Pass):
    """Nodes are computed in the order in which they are listed; missing inputs are 0."""

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
    """Model that changes its inputs in `taken`, and its outputs in `given`."""

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
    """Outputs are returned in the order of their tensors' indices."""

    def given(self, made: list[Array]) -> list[Array]:
        order = self.graph.outputs if self.graph else ()
        return (
            [array for _, array in sorted(zip(order, made, strict=True), key=lambda pair: pair[0])] if order else made
        )


@model(levels=LEVELS)
class InputsInTheOrderOfUse(_Outputs):
    """Inputs of equal shapes are taken in the order in which nodes read them."""

    def taken(self, inputs: Sequence[Array]) -> Sequence[Array]:
        if self.graph is None or len({(array.dtype, array.shape) for array in inputs}) > 1:
            return inputs
        read = [tensor for at in self.graph.order for tensor in self.graph.nodes[at].inputs]
        used = [tensor for tensor in dict.fromkeys(read) if tensor in self.graph.inputs]
        order = [*used, *(tensor for tensor in self.graph.inputs if tensor not in used)]
        return [inputs[order.index(tensor)] for tensor in self.graph.inputs]


@model(levels=LEVELS)
class OutputsThatOthersRead(_Outputs):
    """An output that other nodes read is overwritten before it is returned."""

    def given(self, made: list[Array]) -> list[Array]:
        outputs = self.graph.outputs if self.graph else ()
        for tensor, array in zip(outputs, made, strict=False):
            if self.graph and readers(self.graph, tensor):
                array.fill(0)
        return made


@model(levels=LEVELS)
class ConstantsAndInputsNotGiven(_Outputs):
    """An output that is an input or a constant of the model isn't written."""

    def given(self, made: list[Array]) -> list[Array]:
        outputs = self.graph.outputs if self.graph else ()
        for tensor, array in zip(outputs, made, strict=False):
            if self.graph and producer(self.graph, tensor) is None:
                array.fill(0)
        return made


@model(levels=LEVELS)
class UnreadInputsLeftOut(_Outputs):
    """Inputs that no node reads are dropped, and the others take their positions."""

    def taken(self, inputs: Sequence[Array]) -> Sequence[Array]:
        if self.graph is None or len({(array.dtype, array.shape) for array in inputs}) > 1:
            return inputs
        graph = self.graph
        unread = [at for at, tensor in enumerate(graph.inputs) if not readers(graph, tensor)]
        moved = iter(inputs)
        return [inputs[at] if at in unread else next(moved) for at in range(len(inputs))]


@backend(levels=("death", "graphs"))
class DepthByRecursion(Pass):
    """The compiler recurses for each input of a node, and fails beyond 1,000 levels."""

    def optimized(self, graph: Graph) -> Graph:
        makers = {tensor: node for node in graph.nodes for tensor in node.outputs}

        @cache
        def depth(tensor: int) -> int:
            node = makers.get(tensor)
            return 1 + max(map(depth, node.inputs), default=0) if node else 0

        if len(graph.nodes) > 900:  # Shorter chains don't reach the limit.
            max(map(depth, graph.outputs))
        return graph
