"""Inference of shapes and data types for a whole graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from nnrt_hdi.enums import DataType, Format, NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, Unsupported
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops.operator import OPERATORS, Operator
from nnrt_hdi.tensor import UNKNOWN_DIM, Array, Shape, TensorSpec, format_shape

# The application interface has no shape without dimensions, so it declares a scalar as [1].
SCALAR: Shape = ()
ONE: Shape = (1,)


@dataclass(frozen=True, slots=True)
class Inference:
    """Result of inference: the graph with inferred tensors, and the problems of nodes.

    For each scalar that is declared with shape [1], the graph has a RESHAPE to [1] at its end, so that backends need no
    special case. `added` maps these RESHAPE nodes to the nodes that compute the scalars.
    """

    graph: Graph
    problems: Mapping[int, NnrtError]
    added: Mapping[int, int] = field(default_factory=dict)

    def raise_first_problem(self) -> None:
        """Raise the problem of the first node that has one."""
        raise_first(self.problems)


def raise_first(problems: Mapping[int, NnrtError]) -> None:
    """Raise the problem of the first node that has one."""
    if problems:
        raise problems[min(problems)]


def inferred_graph(graph: Graph) -> Graph:
    """Return the graph with its tensors inferred as far as possible. Raises the first node's problem, if any."""
    inference = infer_graph(graph)
    inference.raise_first_problem()
    return inference.graph


def operator_of(node: Node) -> Operator:
    """Return the operator of a node's type. Raises Unsupported if there is none."""
    try:
        return OPERATORS[node.type]
    except KeyError:
        raise Unsupported(f"{node.type.name} is not an operator this version knows") from None


def infer_node(
    node: Node,
    operands: Sequence[tuple[TensorSpec, Array | None]],
    declared: tuple[TensorSpec, ...] = (),
) -> tuple[TensorSpec, ...]:
    """Infer the specs of a node's outputs.

    Args:
        node: The node.
        operands: The specs of its operands, with the elements of small constants.
        declared: The specs that the model declares for the outputs. They fill in what inference doesn't know.

    Raises:
        InvalidParameter: The node is wrong, or contradicts a declaration. The error has no place.
        Unsupported: The node's type is unknown. The error has no place.
    """
    operator = operator_of(node)
    inferred = operator.infer(operands, operator.bind(node.attrs), declared)
    return complete_specs(inferred, declared) if declared else inferred


def complete_specs(inferred: tuple[TensorSpec, ...], declared: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """Fill in the inferred specs of outputs from the declared ones. Raises InvalidParameter if they contradict."""
    if len(declared) != len(inferred):
        raise InvalidParameter(f"it has {len(declared)} outputs; give {len(inferred)}")
    return tuple([_complete_spec(*pair) for pair in zip(inferred, declared, strict=True)])


def infer_graph(graph: Graph) -> Inference:
    """Infer every node in order. A node with a problem leaves its outputs as declared, so that later nodes are checked.

    A graph that has been inferred is returned as it is.
    """
    if graph.is_inferred:
        return Inference(graph, {})
    specs, problems, undecided, scalars = infer_tensors(graph, graph.tensors, graph.shape_values)
    known = _with_scalars(graph.with_tensors(specs), scalars)
    if not problems:
        object.__setattr__(known, "undecided", undecided)
    return Inference(known, problems, dict(enumerate(scalars.values(), len(graph.nodes))))


class InferredTensors(NamedTuple):
    """Tensors of a graph, inferred as far as possible, and the problems of nodes.

    `undecided` are the nodes with an output dimension that inference doesn't know, even if it is declared. `scalars`
    maps each tensor that is declared [1] but computed as a scalar to its node.
    """

    specs: list[TensorSpec]
    problems: dict[int, NnrtError]
    undecided: frozenset[int]
    scalars: Mapping[int, int] = MappingProxyType({})


def with_known_tensors(graph: Graph, specs: Sequence[TensorSpec], undecided: frozenset[int]) -> Graph:
    """Return an inferred graph with the tensor specs of one run."""
    copy = graph.with_tensors(specs)
    object.__setattr__(copy, "undecided", undecided)
    return copy


def infer_tensors(graph: Graph, tensors: Sequence[TensorSpec], values: Mapping[int, Array]) -> InferredTensors:
    """Infer the nodes of a graph in order, given specs of all tensors and elements of some."""
    specs = list(tensors)
    problems: dict[int, NnrtError] = {}
    undecided, scalars = set[int](), dict[int, int]()
    for index in graph.order:
        node = graph.nodes[index]
        operands = [(specs[tensor], values.get(tensor)) for tensor in node.inputs]
        declared = tuple([specs[tensor] for tensor in node.outputs])
        try:
            operator = operator_of(node)
            inferred = operator.infer(operands, operator.bind(node.attrs), declared)
            outputs = complete_specs(inferred, declared)
        except NnrtError as error:
            problems[index] = error.at(graph.place(index))
            continue
        for tensor, found, spec in zip(node.outputs, inferred, outputs, strict=True):
            specs[tensor] = spec
            if UNKNOWN_DIM in found.shape:
                undecided.add(index)
            if len(found.shape) < len(spec.shape):
                scalars[tensor] = index
    return InferredTensors(specs, problems, frozenset(undecided), scalars)


def _with_scalars(graph: Graph, scalars: Mapping[int, int]) -> Graph:
    """Return the graph with a RESHAPE to [1] at its end for each of these scalars.

    Args:
        graph: The graph.
        scalars: The tensors that are declared [1] but computed as scalars, each with its node.
    """
    if not scalars:
        return graph
    nodes, count = list(graph.nodes), len(graph.tensors)
    shape = count + len(scalars)
    for scalar, (tensor, at) in enumerate(scalars.items(), count):
        outputs = tuple(scalar if output == tensor else output for output in nodes[at].outputs)
        nodes[at] = replace(nodes[at], outputs=outputs)
        nodes.append(Node(NodeType.RESHAPE, (scalar, shape), (tensor,), name=nodes[at].name))
    made = [graph.tensors[tensor].with_shape(SCALAR) for tensor in scalars]
    return replace(
        graph,
        tensors=(*graph.tensors, *made, TensorSpec(DataType.INT64, ONE)),
        nodes=tuple(nodes),
        constants={**graph.constants, shape: Constant.of(np.array(ONE, np.int64))},
    )


def _complete_spec(inferred: TensorSpec, declared: TensorSpec) -> TensorSpec:
    """Fill in an inferred spec from the declared one. Raises InvalidParameter if they contradict."""
    if declared.data_type is not inferred.data_type and declared.data_type is not DataType.UNKNOWN:
        raise _contradiction(declared, declared.data_type.name, inferred.data_type.name)
    layout = declared.format if inferred.format is Format.NONE else inferred.format
    if layout is not declared.format and declared.format is not Format.NONE:
        raise _contradiction(declared, declared.format.name, inferred.format.name)
    shape = inferred.shape if inferred.shape == declared.shape else _complete_shape(inferred.shape, declared.shape)
    if shape is None:
        raise _contradiction(declared, format_shape(declared.shape), format_shape(inferred.shape))
    known = inferred.data_type, shape, layout, declared.quant or inferred.quant, declared.name
    if known == (declared.data_type, declared.shape, declared.format, declared.quant, declared.name):
        complete = declared
    else:
        complete = TensorSpec(*known)
    if complete.is_quantized and not inferred.is_quantized:
        raise InvalidParameter(
            f"{_named(declared)} is declared with quantization parameters, but its {complete.data_type.name} elements"
            " stand for themselves; leave the parameters out"
        )
    return complete


def _contradiction(declared: TensorSpec, said: str, found: str) -> InvalidParameter:
    return InvalidParameter(f"{_named(declared)} is declared {said} but is {found}")


def _named(declared: TensorSpec) -> str:
    return repr(declared.name) if declared.name else "output"


def _complete_shape(inferred: Shape, declared: Shape) -> Shape | None:
    if (inferred, declared) in ((SCALAR, ONE), (ONE, SCALAR)):
        return ONE
    if len(inferred) != len(declared):
        return None
    shape = []
    for known, said in zip(inferred, declared, strict=True):
        if UNKNOWN_DIM not in (known, said) and known != said:
            return None
        shape.append(said if known == UNKNOWN_DIM else known)
    return tuple(shape)
