"""Declaration of judgements: functions that return the position of the rows in an operator's result.

    @judged(NodeType.SOFTMAX)
    def softmax(node: JudgedNode, x: Form) -> Form:
        '''Keep rows apart if axis is not the rows' dimension.'''
        ...
        return node.combined_output(x, [axis], "adds up along")

The docstring begins with "Keep rows apart": the pages in docs/reference/operators quote the condition after it. The
function gets the node and the forms of its operands, of which at least one has rows or elements that depend on their
number: otherwise the results are the same for all rows, and the function is not called. It refuses operands with which
the operator mixes rows.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn, TypeVar

from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops.operator import OPERATORS
from nnrt_hdi.ops.quantization import cast_scalings
from nnrt_hdi.ops.quantized import Scaling
from nnrt_hdi.ops.rows_apart.form import Form, Rows, Source
from nnrt_hdi.ops.rows_apart.sizes import Size, Unknowns
from nnrt_hdi.tensor import UNKNOWN_DIM

Made = Form | tuple[Form, ...]
Judgement = Callable[..., Made]
JudgementT = TypeVar("JudgementT", bound=Judgement)

JUDGEMENTS: dict[NodeType, Judgement] = {}


class JudgedNode:
    """Node of an inferred graph, with the forms of its operands."""

    def __init__(self, graph: Graph, index: int, operands: Sequence[Form], unknowns: Unknowns) -> None:
        self.node = graph.nodes[index]
        self.operator = OPERATORS[self.node.type]
        self.inputs = [graph.tensors[tensor] for tensor in self.node.inputs]
        self.outputs = [graph.tensors[tensor] for tensor in self.node.outputs]
        self.operands = operands
        self.unknowns = unknowns
        self._graph = graph
        self._index = index

    @cached_property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes by parameter, with defaults for absent ones."""
        return self.operator.bind(self.node.attrs)

    @property
    def scalings(self) -> tuple[Sequence[Scaling | None], Sequence[Scaling | None]]:
        """Scalings of the operands and of the outputs; None for those that aren't quantized."""
        if self.operator.sees_quantization:
            x, y = cast_scalings(self.inputs[0], self.outputs[0], self.attrs.get("axis", 0))
            return (x,), (y,)
        view = self.operator.real_view(self.inputs, self.outputs)
        return (view.inputs, view.outputs) if view else ((None,) * len(self.inputs), (None,) * len(self.outputs))

    def name(self, form: Form) -> str:
        """Return the name of an operand, for messages."""
        at = self._position(form)
        rule = self.operator.operands[min(at, len(self.operator.operands) - 1)]
        return f"{rule.name}[{at - len(self.operator.operands) + 1}]" if rule.variadic else rule.name

    def is_constant(self, form: Form) -> bool:
        """Return whether an operand is a constant of the graph."""
        return self.node.inputs[self._position(form)] in self._graph.constants

    def unknown(self, thing: str, at: int, *, is_nonnegative: bool = True) -> Size:
        """Return a number that only the run knows, the same for all rows.

        The node has one such number for each `thing`, such as "size", and index.
        """
        return self.unknowns.get(self._index, thing, at, is_nonnegative=is_nonnegative)

    def output(self, rows: Rows | None, dims: Sequence[Size | None] | None = None, *, at: int = 0) -> Form:
        """Return the form of an output.

        Args:
            rows: The position of its rows; None if it is the same for all rows.
            dims: The sizes that follow from operands, for dimensions that inference doesn't know. None stands for a
                size that only the run knows.
            at: The index of the output.
        """
        spec = self.outputs[at]
        sizes = []
        for axis, dim in enumerate(spec.shape):
            if rows is not None and axis == rows.axis:
                if dim != UNKNOWN_DIM:
                    self.refuse(f"dimension {axis} of its output {spec} is that of the rows, but fixed; leave it -1")
                sizes.append(rows.size)
            elif dim != UNKNOWN_DIM:
                sizes.append(Size(dim))
            else:
                said = dims[axis] if dims else None
                sizes.append(said or self.unknown(f"output {at}", axis))
        if any(size.counts_rows for axis, size in enumerate(sizes) if rows is None or axis != rows.axis):
            self.refuse(f"its output {spec} would count the rows in several dimensions")
        return Form(tuple(sizes), rows)

    def moved_output(self, x: Form, sources: Sequence[Source], does: str = "", *, at: int = 0) -> Form:
        """Return the form of an output whose dimensions come from `sources`.

        Refuses the node if no source is the rows' dimension of x.

        Args:
            x: The operand with the rows.
            sources: The source of each dimension.
            does: The verb of the refusal's message: what the operator does to the rows' dimension.
            at: The index of the output.
        """
        rows = self.require_rows(x)
        if rows.axis not in sources:
            self.refuse(f"it {does} dimension {rows.axis}, which is that of the rows")
        dims = [x.dims[source] if isinstance(source, int) else source for source in sources]
        return self.output(rows.moved_to(sources.index(rows.axis)), dims, at=at)

    def combined_output(self, x: Form, axes: Collection[int], does: str) -> Form:
        """Return the form of an output shaped like x, whose operator combines (`does`) entries along these axes."""
        return self.moved_output(x, [x.dims[axis] if axis in axes else axis for axis in range(x.rank)], does)

    def equal_outputs(self) -> tuple[Form, ...]:
        """Return the forms of all outputs, for a node whose outputs are the same for all rows."""
        return tuple(self.output(None, at=at) for at in range(len(self.outputs)))

    def require_alike(self, *operands: Form) -> None:
        """Refuse operands that aren't the same for all rows."""
        for operand in operands:
            if not operand.is_alike:
                self.refuse(f"{self.name(operand)} {_has(operand)}; only one that is the same for all can be joined")

    def require_rows(self, operand: Form) -> Rows:
        """Return the position of an operand's rows. Refuses an operand without rows."""
        if operand.counts_rows:
            self.require_alike(operand)
        if operand.rows is None:
            self.refuse(f"{self.name(operand)} is the same for all rows, beside others that have a part for each")
        return operand.rows

    def require_common(self, *operands: Form) -> Rows:
        """Return the position of the rows. Refuses operands that have them at different positions."""
        places = [self.require_rows(operand) for operand in operands]
        if len(set(places)) > 1:
            self.refuse("its operands have the rows in different places")
        return places[0]

    def refuse(self, message: str) -> NoReturn:
        """Raise Unsupported, because the node mixes rows."""
        raise Unsupported(message, place=self._graph.place(self._index))

    def _position(self, form: Form) -> int:
        return next(at for at, operand in enumerate(self.operands) if operand is form)


def judged(*types: NodeType) -> Callable[[JudgementT], JudgementT]:
    """Register a function as the judgement of these operators (see the module)."""

    def declare(function: JudgementT) -> JudgementT:
        for node_type in types:
            if node_type in JUDGEMENTS:
                raise TypeError(f"{node_type.name} is judged twice")
            JUDGEMENTS[node_type] = function
        return function

    return declare


def _has(operand: Form) -> str:
    return "has a part for each row" if operand.rows else "depends on how many rows there are"
