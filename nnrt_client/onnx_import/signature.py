"""Check of a node's inputs and attributes against the signature of its operator's function."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NoReturn

from nnrt_hdi.errors import Unsupported
from nnrt_hdi.ops.signature import DeclaredAttribute, Signature, type_check


def refuse(message: str) -> NoReturn:
    """Raise Unsupported with the reason why the current node can't be imported. The importer adds the node's name."""
    raise Unsupported(message)


def bind(signature: Signature, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value for each attribute parameter. Raise Unsupported for inputs or attributes that don't fit."""
    names = [operand.name for operand in signature.operands]
    for at, operand in enumerate(signature.operands):
        if not operand.is_optional and (at >= len(inputs) or inputs[at] is None):
            refuse(f"it has no input {operand.name!r}; give it")
    if len(inputs) > len(names) and not signature.is_variadic:
        refuse(f"it has {len(inputs)} inputs; at most {len(names)} are mapped ({', '.join(names)})")
    for name, value in attributes.items():
        if name not in signature.attributes:
            refuse(f"its attribute {name} = {value!r:.80} is not mapped")
    values = {
        attribute.parameter: _require_type(attribute, attributes[name]) if name in attributes else _default(attribute)
        for name, attribute in signature.attributes.items()
    }
    for name, kind in signature.groups.items():
        values[name] = kind(**{each.name: values.pop(each.name) for each in fields(kind)})
    return values


def _default(attribute: DeclaredAttribute) -> Any:
    if attribute.is_required:
        refuse(f"its attribute {attribute.name} is missing; give it")
    return attribute.default


def _require_type(attribute: DeclaredAttribute, value: Any) -> Any:
    """Return the value. Raise Unsupported if it doesn't have the declared type."""
    if not type_check(attribute.type)(value):
        refuse(f"its attribute {attribute.name} is {value!r:.80}, which has another type than ONNX says")
    return value
