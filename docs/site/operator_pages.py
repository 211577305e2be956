"""Pages of the operators, one per family, as Markdown.

Everything on them comes from the operation tables of the client, the operator declarations of the contract, and the
answers of the installed backends.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import cache
from itertools import groupby
from types import NoneType
from typing import Any, get_args, get_origin

from operators.single_node import graph_of, pairs

from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_client.model.operations import FAMILIES, Operation
from nnrt_client.model.operations.operation import MANY
from nnrt_client.model.operations.parameter import Parameter
from nnrt_hdi.backend import Backend, backend_names, load_backend
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.ops import OPERATORS, Operator
from nnrt_hdi.ops.operands import ANY, FLOATS, INTEGERS, NUMBERS, SIGNED_INTEGERS
from nnrt_hdi.ops.operator import OperandRule
from nnrt_hdi.ops.rows_apart import rows_apart_condition
from nnrt_hdi.ops.signature import DeclaredAttribute
from nnrt_hdi.tensor import QuantParam, TensorSpec

# Name of the page of node types that no NNRt operation is lowered to.
_OTHERS = "others"

# Names of sets of data types.
_NAMED_SETS = {
    ANY: "any",
    NUMBERS: "numbers",
    FLOATS: "floats",
    INTEGERS: "integers",
    SIGNED_INTEGERS: "signed integers",
    FLOATS | SIGNED_INTEGERS: "floats, signed integers",
    FLOATS | {DataType.BOOL}: "floats, BOOL",
}


def pages() -> dict[str, str]:
    """Return the Markdown of each page by the family's name."""
    return {family: "\n".join(_page(family, declared)) + "\n" for family, declared in _families()}


def index() -> str:
    """Return lists of all operations and of all node types, as links to the pages of their families."""
    lines = []
    for family, declared in _families():
        lines.append(f"- [{family}](operators/{family}.md): " + ", ".join(_link(family, each) for each in declared))
    family_of = {each.node_type: family for family, declared in _families() for each in declared}
    family_of |= dict.fromkeys(set(OPERATORS) - set(family_of), _OTHERS)
    node_types = sorted(OPERATORS, key=lambda node_type: node_type.name)
    links = ", ".join(f"[{each.name}](operators/{family_of[each]}.md#node-{each.name.lower()})" for each in node_types)
    return "\n".join([*lines, "", "Node types: " + links])


def enums() -> str:
    """Return the enums of attributes with their numbers."""
    rows = (f"| {enum.__name__} | {', '.join(map(_member, enum))} |" for enum in _enums())
    return "\n".join(["| enum | members |", "|---|---|", *rows])


def _families() -> Iterator[tuple[str, Sequence[Operation]]]:
    """Yield each family with its operations, and last the name of the page for node types without an operation."""
    for family, declared in sorted(FAMILIES.items()):
        if declared:
            yield family, declared
    yield _OTHERS, ()


def _page(family: str, declared: Sequence[Operation]) -> Iterator[str]:
    yield f"# {family.replace('_', ' ').capitalize()}"
    for node_type, group in groupby(declared, key=lambda operation: operation.node_type):
        yield from _section(node_type, list(group))
    if family != _OTHERS:
        return
    yield from ("", "Devices run these node types; no operation becomes one.")
    lowered = {operation.node_type for _, operations in _families() for operation in operations}
    for node_type in sorted(set(OPERATORS) - lowered):
        yield from ("", f"## {node_type.name}", "", "1 output.", "", *_node(OPERATORS[node_type]))


def _link(family: str, operation: Operation) -> str:
    return f"[{operation.type.name}](operators/{family}.md#operation-{operation.type.name.lower()})"


def _section(node_type: NodeType, operations: list[Operation]) -> Iterator[str]:
    """Yield the section of consecutive operations of a family that are lowered to the same node type."""
    yield ""
    yield from (f"(operation-{operation.type.name.lower()})=" for operation in operations)
    yield f"## {', '.join(operation.type.name for operation in operations)}"
    yield ""
    for operation in operations:
        fixed = ", ".join(f"{name} = {_value(value)}" for name, value in operation.fixed.items() if name != "format")
        counted = f"{operation.type.name} becomes `{node_type.name}`" + (f" with {fixed}" if fixed else "")
        yield f"- {counted}; {_outputs(operation)}"
    yield ""
    yield from _node(OPERATORS[node_type])
    rows = [
        _parameter(parameter, OPERATORS[node_type].attributes[parameter.attr].default)
        for operation in operations
        for parameter in operation.parameters
    ]
    if rows:
        yield from ("", "| parameter | attribute | type | default | tensor |", "|---|---|---|---|---|", *rows)


def _outputs(operation: Operation) -> str:
    least, most = operation.outputs
    count = f"{least}" if least == most else f"{least} or more" if most == MANY else f"{least} to {most}"
    return f"{count} output{'' if count == '1' else 's'}"


def _node(operator: Operator) -> Iterator[str]:
    yield f"(node-{operator.node_type.name.lower()})="
    yield ""
    # A docstring is prose that begins with the formula; its line breaks mean nothing.
    yield " ".join(operator.doc.split())
    yield ""
    yield "| operand | data types | rank |"
    yield "|---|---|---|"
    for rule in operator.operands:
        yield f"| {_operand_name(rule)} | {_data_types(operator, rule)} | {rule.accepts.ranks.removeprefix('rank ')} |"
    yield ""
    if operator.attributes:
        yield "| attribute | type | default |"
        yield "|---|---|---|"
        yield from map(_attribute, operator.attributes.values())
        yield ""
    yield f"Runs on: {', '.join(_backends(operator.node_type)) or 'no installed backend'}."
    yield ""
    yield f"Keeps rows apart {rows_apart_condition(operator.node_type)}."


def _attribute(attribute: DeclaredAttribute) -> str:
    kind, default = attribute.type, attribute.default
    if attribute.is_required:
        shown = "required"
    elif _is_enum(kind):
        shown = kind(default).name
    else:
        shown = "()" if default == () else _value(default)
    return f"| `{attribute.name}` | {_type_name(kind)} | {shown} |"


def _type_name(declared: Any) -> str:
    if get_origin(declared) is tuple:
        return f"tuple of {_type_name(get_args(declared)[0])}"
    return declared.__name__ if isinstance(declared, type) else _type_name(_required_type(declared)) + " or none"


def _required_type(declared: Any) -> Any:
    """Return the type in an optional attribute's annotation, without None."""
    return next(kind for kind in get_args(declared) if kind is not NoneType)


def _is_enum(declared: Any) -> bool:
    return isinstance(declared, type) and issubclass(declared, IntEnum)


def _enums() -> list[type[IntEnum]]:
    """Return the enums that attributes have as types, sorted by name."""
    kinds = {attribute.type for operator in OPERATORS.values() for attribute in operator.attributes.values()}
    return sorted(filter(_is_enum, kinds), key=lambda enum: enum.__name__)


def _member(member: IntEnum) -> str:
    return f"{member.value} {member.name}"


def _operand_name(rule: OperandRule) -> str:
    return f"`{rule.name}`" + (" ..." if rule.variadic else "") + (" (optional)" if rule.optional else "")


def _data_types(operator: Operator, rule: OperandRule) -> str:
    allowed = rule.accepts.data_types or ANY
    named = _NAMED_SETS.get(frozenset(allowed)) or ", ".join(sorted(data_type.name for data_type in allowed))
    return named + (" **q**" if operator.takes_quantized(rule) else "")


def _parameter(parameter: Parameter, default: Any) -> str:
    names = " or ".join(data_type.name for data_type in parameter.data_types)
    count = "" if parameter.counts == (1,) else f" x {' or '.join(map(str, parameter.counts)) or 'n'}"
    kind = f"{parameter.enum.__name__} ({names})" if parameter.enum else names + count
    shown = "required" if parameter.required else _value(default)
    tensors = ", ".join(f"`{tensor_type.name}`" for tensor_type in parameter.tensor_types[:1])
    return f"| `{parameter.keyword}` | `{parameter.attr}` | {kind} | {shown} | {tensors} |"


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return repr(value)
    return getattr(value, "name", None) or (str(list(value)) if isinstance(value, tuple) else str(value).lower())


def _backends(node_type: NodeType) -> Iterator[str]:
    """Yield the names of the installed backends that support an example node of this type."""
    sample = next((sample for sample in SAMPLES if sample.node_type is node_type), None)
    graph = graph_of(node_type, pairs(sample, sample.arrays()), sample.attrs) if sample else _cast_graph(node_type)
    for name, backend in _installed().items():
        if all(support.supported for support in backend.supported(graph)):
            yield name
    yield "torch"  # Not installed here, but tests/on_torch requires a kernel for each operator.


@cache
def _installed() -> dict[str, Backend]:
    return {name: load_backend(name) for name in backend_names() if name != "torch"}


def _cast_graph(node_type: NodeType) -> Graph:
    """Return a graph of one cast to INT8. Casts have no samples, because samples have no quantization parameters."""
    x, y = TensorSpec(DataType.FLOAT32, ()), TensorSpec(DataType.INT8, (), quant=(QuantParam(1.0, 0),))
    attrs = {"src_t": int(x.data_type), "dst_t": int(y.data_type)}
    return Graph((x, y), (Node(node_type, (0,), (1,), attrs),), (0,), (1,))
