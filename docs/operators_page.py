"""Write docs/operators.md from the declarations: `make docs`. With --check, fail if the page is not what they say.

Everything on the page comes from the operation tables of the client, the operator declarations of the contract, and the
answers of the installed backends.
"""

import sys
from collections.abc import Iterator
from enum import IntEnum
from itertools import groupby
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from operators.single_node import graph_of, pairs

from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_client.model.operations import FAMILIES, Operation
from nnrt_client.model.operations.operation import MANY
from nnrt_client.model.operations.parameter import Parameter
from nnrt_hdi.backend import backend_names, load_backend
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.ops import OPERATORS, Operator
from nnrt_hdi.ops.operands import ANY, FLOATS, INTEGERS, NUMBERS, SIGNED_INTEGERS
from nnrt_hdi.ops.operator import OperandRule
from nnrt_hdi.ops.rows_apart import rows_stay_apart_if
from nnrt_hdi.ops.signature import DeclaredAttribute
from nnrt_hdi.tensor import QuantParam, TensorSpec

PAGE = Path(__file__).resolve().parent / "operators.md"

# Sets of data types that have a name.
_NAMED_SETS = {
    ANY: "any",
    NUMBERS: "numbers",
    FLOATS: "floats",
    INTEGERS: "integers",
    SIGNED_INTEGERS: "signed integers",
    FLOATS | SIGNED_INTEGERS: "floats, signed integers",
    FLOATS | {DataType.BOOL}: "floats, BOOL",
}


def page() -> str:
    operations = [operation for family in FAMILIES.values() for operation in family]
    lowered = {operation.node_type for operation in operations}
    lines = [
        "# Operators",
        "",
        "<!-- Written by `make docs` from the declarations; `make docs-check` fails if it is out of date. -->",
        "",
        f"{len(operations)} operations of the application interface become {len(OPERATORS)} node types of the",
        "device interface. `model.apply(OperationType.X, ...)` takes the operands in the order given here and the",
        "parameters by keyword; NNRt's own `add_operation` takes them as tensors of the types in the last column.",
        "",
        "Data types: *numbers* are integers and floats, *integers* INT8..64 and UINT8..64, *floats* FLOAT16..64, *any*",
        "numbers and BOOL. An operand marked **q** may be quantized (INT8 or UINT8 with parameters); then the output",
        "is, too, with parameters of its own: see [ADR 3](adr/0003-quantized-tensors.md).",
        "",
        "A scalar may be declared `[1]`, and then it is `[1]` to the operators that read it; what is `[1]` may be",
        "declared a scalar. Axes of folds and of SQUEEZE that are named twice count once.",
        "",
        "*Rows* are what a run has along the open dimension 0 of its inputs. An operator keeps them apart where each",
        "row of its result follows from the same row of its operands alone, so that runs may be joined. Operands",
        "that are constant, or follow from constants, are the same for all rows.",
        "",
        "## Operations",
        "",
    ]
    for family, declared in sorted(FAMILIES.items()):
        if declared:
            lines += [f"- [{family}](#{family}): " + ", ".join(_link(operation) for operation in declared)]
    lines += [
        "",
        "## Node types",
        "",
        "What a device gets, and a backend computes. `Node.inputs` has the operands in the order of their table, and",
        "ends early where the last ones are left out. `Node.attrs` has only the attributes that the model gives:",
        "`OPERATORS[node.type].bind(node.attrs)` (of `nnrt_hdi.ops`) gives all of them, in the types of their table",
        "and with the defaults of those that are left out. *Enums* have their numbers [below](#enums). An attribute",
        "that may be *none* is then decided by the operands. A fused activation (`activation_type`, but of",
        "ACTIVATION) is NO_ACTIVATION, RELU or RELU6.",
        "",
        ", ".join(map(_node_link, sorted(OPERATORS, key=lambda node_type: node_type.name))),
    ]
    for family, declared in sorted(FAMILIES.items()):
        if declared:
            lines += ["", f"## {family}"]
        for node_type, group in groupby(declared, key=lambda operation: operation.node_type):
            lines += _section(node_type, list(group))
    others = sorted(set(OPERATORS) - lowered)
    if others:
        lines += ["", "## Node types without an operation", "", "Devices run them; no operation becomes one."]
        for node_type in others:
            lines += ["", f"### {node_type.name}", "", "1 output.", "", *_node(OPERATORS[node_type])]
    lines += ["", "## Enums", "", "Of attributes, in `nnrt_hdi.enums`.", "", "| enum | members |", "|---|---|"]
    lines += [f"| {enum.__name__} | {', '.join(map(_member, enum))} |" for enum in _enums()]
    return "\n".join(lines) + "\n"


def _link(operation: Operation) -> str:
    return f"[{operation.type.name}](#{operation.type.name.lower()})"


def _node_link(node_type: NodeType) -> str:
    return f"[{node_type.name}](#node-{node_type.name.lower()})"


def _section(node_type: NodeType, operations: list[Operation]) -> Iterator[str]:
    """The operations of a family that become the same node."""
    yield ""
    yield "".join(f'<a id="{operation.type.name.lower()}"></a>' for operation in operations)
    yield ""
    yield f"### {', '.join(operation.type.name for operation in operations)}"
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
    yield f'<a id="node-{operator.node_type.name.lower()}"></a>'
    yield ""
    # A docstring is prose with its formula first; line breaks in it mean nothing.
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
    yield f"Keeps rows apart {rows_stay_apart_if(operator.node_type)}."


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
    return declared.__name__ if isinstance(declared, type) else _type_name(_without_none(declared)) + " or none"


def _without_none(declared: Any) -> Any:
    """The type that an attribute has where it isn't left out."""
    return next(kind for kind in get_args(declared) if kind is not NoneType)


def _is_enum(declared: Any) -> bool:
    return isinstance(declared, type) and issubclass(declared, IntEnum)


def _enums() -> list[type[IntEnum]]:
    """The enums of attributes, by name."""
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
    """The backends that say they run a node of this type: the first sample of it, or a conversion."""
    sample = next((sample for sample in SAMPLES if sample.node_type is node_type), None)
    graph = graph_of(node_type, pairs(sample, sample.arrays()), sample.attrs) if sample else _conversion(node_type)
    for name in backend_names():
        if all(support.supported for support in load_backend(name).supported(graph)):
            yield name


def _conversion(node_type: NodeType) -> Graph:
    """Of a real number; the parameters of its result are part of the graph, so that there are no samples."""
    x, y = TensorSpec(DataType.FLOAT32, ()), TensorSpec(DataType.INT8, (), quant=(QuantParam(1.0, 0),))
    attrs = {"src_t": int(x.data_type), "dst_t": int(y.data_type)}
    return Graph((x, y), (Node(node_type, (0,), (1,), attrs),), (0,), (1,))


def main() -> None:
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        raise SystemExit("docs/operators.md is not what the declarations say; run `make docs`")


if __name__ == "__main__":
    main()
