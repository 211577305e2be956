"""Inputs of a model that determine a value, and the options that make the value known before a run."""

from collections.abc import Iterator, Sequence

from onnx import NodeProto, ValueInfoProto

from nnrt_client.onnx_import.file import declared_size
from nnrt_client.onnx_import.scope import Scope
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.tensor import UNKNOWN_DIM

_SHAPE_READERS = ("Shape", "Size")
_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
# Inputs with more elements are data, not settings.
_MOST_NUMBERS = 8


def advise(scope: Scope, name: str, inputs: Sequence[ValueInfoProto]) -> str:
    """Return advice, for a message, on which inputs determine a value and how to fix them; "" if none does."""
    by_name = {info.name: info for info in inputs}
    numbers: list[int] = []
    found: dict[str, bool] = {}
    for node, origin, by_value in _walk(scope, name):
        if node is not None:
            numbers += _compared_numbers(scope, node)
        elif origin in by_name:
            found[origin] = found.get(origin, False) or by_value
    parts = []
    for origin, by_value in found.items():
        info = by_name[origin]
        if not by_value:
            parts.append(f"from the shape of input {origin!r}; fix that with shapes (--shape {origin}={_option(info)})")
        elif _is_setting(info):
            number = numbers[0] if numbers else "NUMBER"
            parts.append(f"from input {origin!r}; freeze that with constants (--constant {origin}={number})")
        else:
            parts.append(f"from the elements of input {origin!r}")
    return " and ".join(parts)


def _walk(scope: Scope, name: str) -> Iterator[tuple[NodeProto | None, str, bool]]:
    """Yield all values that determine a value.

    Yields:
        The node that writes the value, or None; the name of the value; whether its elements matter, and not only its
        shape.
    """
    waiting, seen = [(name, True)], {("", True), ("", False)}
    while waiting:
        step = waiting.pop()
        if step in seen:
            continue
        seen.add(step)
        name, by_value = step
        node = scope.writer(name)
        yield node, name, by_value
        if node is not None:
            waiting += [(given, by_value and node.op_type not in _SHAPE_READERS) for given in node.input]


def _compared_numbers(scope: Scope, node: NodeProto) -> list[int]:
    """Return the constants that a node compares something with."""
    if node.op_type not in _COMPARISONS:
        return []
    values = [scope.find(name) for name in node.input]
    return [value.ints[0] for value in values if isinstance(value, Value) and value.is_constant and value.ints]


def _is_setting(info: ValueInfoProto) -> bool:
    """Return whether an input has few numbers, as settings do."""
    dims = [declared_size(dim) for dim in info.type.tensor_type.shape.dim]
    return len(dims) < 2 and all(0 < dim <= _MOST_NUMBERS for dim in dims)


def _option(info: ValueInfoProto) -> str:
    """Return the dimensions of an input as --shape takes them, with names in capitals for unknown ones."""
    dims = info.type.tensor_type.shape.dim
    sizes = [(declared_size(dim), dim.dim_param) for dim in dims]
    return ",".join((name or "n").upper() if size == UNKNOWN_DIM else str(size) for size, name in sizes)
